"""The Helm chart of a cluster: the objects of ``render.objects``, their values a user's to edit."""

from divvy.render.chart.chart import NAME, Chart, chart_files, chart_objects, values_of

__all__ = ["NAME", "Chart", "chart_files", "chart_objects", "values_of"]
