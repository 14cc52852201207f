"""The content-addressed cache on disk: its root, its manifests, its store, and how it is emptied."""
