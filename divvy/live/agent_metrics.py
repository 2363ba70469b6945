"""Reads the metrics of a node's agent, as Prometheus would."""

import re

from prometheus_client.parser import text_string_to_metric_families

from divvy.live.agent_readings import READ, Sample

_STARTS = tuple(f"{name}{end}" for name in READ for end in ("{", " "))
# A line without escapes or a timestamp: so are nearly all. The parser, which knows every line,
# takes ten times as long for them, and a large cluster has a hundred thousand.
_PLAIN = re.compile(r'(\w+)\{((?:\w+="[^"\\]*",?)*)\} (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)')
_LABEL = re.compile(r'(\w+)="([^"\\]*)"')


def samples_of(page: str) -> tuple[Sample, ...]:
    """Return what a view of GPUs needs of a metrics page; raises ValueError if it is none."""
    samples: list[Sample] = []
    for line in page.splitlines():
        if not line.startswith(_STARTS):
            continue
        plain = _PLAIN.fullmatch(line)
        if plain is None:
            samples += _parsed(line)
        else:
            samples.append(Sample(plain[1], dict(_LABEL.findall(plain[2])), float(plain[3])))
    return tuple(samples)


def _parsed(line: str) -> list[Sample]:
    try:
        families = list(text_string_to_metric_families(f"{line}\n"))
    except (ValueError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"not a page of metrics: {error}") from None
    return [
        Sample(sample.name, sample.labels, float(sample.value))
        for family in families
        for sample in family.samples
    ]
