"""How the template maker starts where it has no cluster."""

from __future__ import annotations

import pytest

from divvy.claim_templates.__main__ import main


def test_reports_that_it_has_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", "/none")
    with pytest.raises(SystemExit, match="KUBECONFIG=/none: no such file"):
        main()
