"""What is done to programs: passes, pipelines, and the folders of the passes in the order they run."""
