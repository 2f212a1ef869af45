"""Write-once records, their comparison and page, and the root cause in a log."""
