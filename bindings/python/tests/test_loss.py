from pathlib import Path

import pytest

from barograph import LossClassifier

MODELS = Path(__file__).parents[3] / "crates" / "loss" / "models"

STALLS = [3000, 60, 2000, 150, 5000, 90]
"""Losses of a host: 60, 150 and 90 packets in a row."""


def test_the_cause_is_found_by_pattern_and_by_counter():
    classifier = LossClassifier()
    stalled = classifier.diagnose(20_000, STALLS, burst=1)
    assert (stalled.verdict, stalled.lost, stalled.lost_host) == ("cpu", 300, 300)
    assert stalled.evidence[:2] == ["pattern", "burst"]
    counted = classifier.diagnose(20_000, STALLS, host_drops=0)
    assert (counted.verdict, counted.lost_network) == ("network", 300)
    assert counted.evidence[0] == "host_drops"


def test_a_model_is_text_of_classify_fit():
    shipped = LossClassifier((MODELS / "default.toml").read_text(encoding="utf-8"))
    own = shipped.diagnose(20_000, STALLS, burst=4, delay=0.00002)
    assert own.p_cpu == LossClassifier().diagnose(20_000, STALLS, burst=4, delay=0.00002).p_cpu
    with pytest.raises(ValueError, match="`format` is not"):
        LossClassifier((MODELS / "paper.toml").read_text(encoding="utf-8"))


def test_the_classifier_of_the_paper_uses_the_pattern_alone():
    paper = LossClassifier.paper()
    stalled = paper.diagnose(20_000, STALLS, host_drops=0, marks=9)
    assert (stalled.verdict, stalled.evidence) == ("cpu", ["pattern"])
    assert "verdict='cpu'" in repr(stalled)


def test_windows_and_evidence_that_cannot_be_are_refused():
    classifier = LossClassifier()
    with pytest.raises(ValueError, match="more than the window of 100"):
        classifier.diagnose(100, [90, 20])
    with pytest.raises(ValueError, match="burst"):
        classifier.diagnose(100, [9, 1], burst=0)
    with pytest.raises(ValueError, match="delay"):
        classifier.diagnose(100, [9, 1], delay=float("nan"))
    with pytest.raises(TypeError):
        classifier.diagnose(100, "9,1")  # type: ignore[arg-type]
