"""Plans, reviews and clusters for people: terminal, Markdown, HTML, JSON."""
