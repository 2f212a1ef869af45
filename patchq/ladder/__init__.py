"""The ladder: ordered rungs of checks that widen one dimension at a time; what fails stops the climb."""
