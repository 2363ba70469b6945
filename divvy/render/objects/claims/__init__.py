"""The objects that a cluster has for claims: classes, policies, the template maker."""

from divvy.render.objects.claims.claim_objects import claim_objects

__all__ = ["claim_objects"]
