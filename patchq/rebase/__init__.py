"""Moving a series to another baseline: what becomes of each patch, and the way there, resolved step by step."""
