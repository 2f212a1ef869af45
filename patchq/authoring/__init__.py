"""Patches as people change them: edit copies, what they say when refreshed, and what a new patch is made of."""
