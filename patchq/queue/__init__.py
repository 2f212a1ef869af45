"""The queue: everything below `series/`, read strictly, and the selections that follow from it."""
