"""Everything of a release that can be published: wheel, sdist, SBOM, checksums, signature."""
