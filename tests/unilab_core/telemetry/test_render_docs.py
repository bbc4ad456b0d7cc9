"""docs/metrics.md is what the tables say."""

from pathlib import Path

from unilab_core.telemetry.diagnosis import BOTTLENECKS
from unilab_core.telemetry.legacy_tags import LEGACY_TAGS
from unilab_core.telemetry.metric_schema import FAMILIES, METRICS
from unilab_core.telemetry.render_docs import main, render

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == render(), (
        "run python -m unilab_core.telemetry.render_docs docs/metrics.md"
    )


def test_every_tag_legacy_tag_and_bottleneck_is_on_the_page():
    page = render()
    for metric in [*METRICS.values(), *FAMILIES]:
        assert f"| `{metric.tag}` | {metric.unit} |" in page
    for entry in LEGACY_TAGS:
        assert f"| `{entry.legacy}` | `{entry.canonical}` | {entry.factor:g} |" in page
    for row in BOTTLENECKS:
        assert row.meaning in page


def test_check_tells_an_old_page_from_a_new_one(tmp_path, capsys):
    page = tmp_path / "metrics.md"
    assert main(["--check", str(page)]) == 1
    assert main([str(page)]) == 0
    assert main(["--check", str(page)]) == 0
    page.write_text(page.read_text() + "x")
    assert main(["--check", str(page)]) == 1
    assert "out of date" in capsys.readouterr().err
