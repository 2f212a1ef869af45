"""patchq: a patch queue for post-training frameworks, chosen per machine and carried offline."""

__version__ = "0.1.0"
