"""Small scripts for the training interpreter; they import nothing of patchq."""
