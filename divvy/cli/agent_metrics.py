"""Reads the metrics of a node's agent, as Prometheus would."""

from prometheus_client.parser import text_string_to_metric_families

from divvy.plan.agent_readings import READ, Sample

_STARTS = tuple(f"{name}{end}" for name in READ for end in ("{", " "))


def samples_of(page: str) -> tuple[Sample, ...]:
    """Return what a view of GPUs needs of a metrics page; raises ValueError if it is none."""
    # Most of a page is for dashboards: reading all of it takes several times as long.
    lines = [line for line in page.splitlines() if line.startswith(_STARTS)]
    try:
        families = list(text_string_to_metric_families("\n".join(lines) + "\n"))
    except (ValueError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"not a page of metrics: {error}") from None
    return tuple(
        Sample(sample.name, sample.labels, sample.value)
        for family in families
        for sample in family.samples
    )
