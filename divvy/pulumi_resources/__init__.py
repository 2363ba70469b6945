"""Dynamic resources of the Pulumi program.

They lie beside the components and not among them: the dynamic provider's server loads a resource's
module and what it imports in every run.
"""
