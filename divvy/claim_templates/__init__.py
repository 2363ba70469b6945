"""The template maker: writes the ResourceClaimTemplates that pods name.

The policy of sized limits lets a pod name a template that says what was asked for, and cannot
create it. This controller does, and removes those that no pod names any longer.
"""
