"""What crosses the air gap: bundles and their manifests, going out and coming in, and a queue as one text file."""
