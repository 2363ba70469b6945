"""Stack files: where they are, what they hold, how one value of them is changed."""
