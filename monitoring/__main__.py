"""`python -m monitoring`: write the dashboards and the table of metrics again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from grafana_foundation_sdk.builders import (
    common,
    dashboard as builders,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import StackingMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    GridPos,
    VariableHide,
    VariableOption,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from visibility_api.job_metrics.families import FAMILIES, JOB_LABELS, LEFT_OUT

from .panels import DASHBOARDS, FLEET, JOB, Dashboard, Panel

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/prometheus.md"
BEGIN, END = "<!-- made by `make monitoring` -->", "<!-- until here -->"
WIDTH, STAT_WIDTH, STAT_HEIGHT, HEIGHT = 24, 6, 4, 8
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_Builder: TypeAlias = stat.Panel | timeseries.Panel | statetimeline.Panel | table.Panel
_BUILDERS: Mapping[str, type[_Builder]] = {
    "stat": stat.Panel,
    "lines": timeseries.Panel,
    "stacked": timeseries.Panel,
    "states": statetimeline.Panel,
    "table": table.Panel,
}


def dashboard(made: Dashboard) -> str:
    """As Grafana imports it."""
    builder = (
        builders.Dashboard(made.title)
        .uid(made.uid)
        .tags(["trainjob-visibility"])
        .refresh("1m")
        .time("now-6h", "now")
        .with_variable(builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for name, query in made.variables:
        builder.with_variable(_variable(name, query, is_one=made.is_of_one))
    address = builders.TextBoxVariable("page").label("Address of the page").default_value("")
    builder.with_variable(address)
    link = builders.DashboardLink("Open the page").type(DashboardLinkType.LINK).url("${page}" + made.link)
    builder.link(link.target_blank(True))
    others = builders.DashboardLink("Training jobs").type(DashboardLinkType.DASHBOARDS)
    builder.link(others.tags(["trainjob-visibility"]).as_dropdown(True))
    x = y = 0
    for number, panel in enumerate(made.panels, start=1):
        is_stat, is_table = panel.kind == "stat", panel.kind == "table"
        width = STAT_WIDTH if is_stat else WIDTH if is_table else WIDTH // 2
        height = STAT_HEIGHT if is_stat else HEIGHT
        if x + width > WIDTH:
            x, y = 0, y + (STAT_HEIGHT if made.panels[number - 2].kind == "stat" else HEIGHT)
        builder.with_panel(_panel(panel, made).id(number).grid_pos(GridPos(h=height, w=width, x=x, y=y)))
        x += width
    return json.dumps(builder.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def _variable(name: str, query: str, *, is_one: bool) -> builders.QueryVariable:
    variable = builders.QueryVariable(name).query(query).datasource(_SOURCE)
    variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    if is_one:
        return variable.hide(VariableHide.HIDE_VARIABLE) if name == "plural" else variable
    every = VariableOption(text="All", value="$__all")
    return variable.multi(True).include_all(True).all_value(".*").current(every)


def _panel(panel: Panel, made: Dashboard) -> _Builder:
    builder: _Builder = _BUILDERS[panel.kind]()
    builder.title(panel.title).datasource(_SOURCE).unit(panel.unit)
    said = [panel.text, f"Empty when {panel.empty}." if panel.empty else ""]
    if any(said):
        builder.description(" ".join(filter(None, said)))
    for place, (expr, legend) in enumerate(panel.queries):
        query = prometheus.Dataquery().expr(expr).ref_id(chr(ord("A") + place)).datasource(_SOURCE)
        if legend and panel.kind != "table":
            query.legend_format(legend)
        if panel.kind in ("stat", "table"):
            query.instant()
        if panel.kind == "table":
            query.format(PromQueryFormat.TABLE)
        builder.with_target(query)
    if isinstance(builder, timeseries.Panel) and panel.kind == "stacked":
        builder.fill_opacity(30).stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    if isinstance(builder, table.Panel):
        _lay_out(builder, panel, made)
    return builder


def _lay_out(builder: table.Panel, panel: Panel, made: Dashboard) -> None:
    """One row a job: the queries are joined by its labels, and the columns named."""
    names = {f"Value #{chr(ord('A') + place)}": name for place, (_, name) in enumerate(panel.queries)}
    names = names if len(names) > 1 else {}
    hidden = {"Time": True} | ({} if names else {"Value": True})
    for kind, options in (
        ("merge", {}),
        ("organize", {"excludeByName": hidden, "renameByName": names}),
    ):
        builder.with_transformation(DataTransformerConfig(id_val=kind, options=options))
    if made is FLEET:
        row = "&".join(f"var-{each}=${{__data.fields.{each}}}" for each in JOB_LABELS)
        link = builders.DashboardLink("This job").url(f"/d/{JOB.uid}?{row}&${{datasource:queryparam}}")
        builder.data_links([link])


def metrics_table() -> str:
    """Every metric, as docs/prometheus.md has it."""
    rows = ["| metric | what it says | no sample when |", "|---|---|---|"]
    for each in FAMILIES:
        labels = f"{{{','.join(each.labels)}}}" if each.labels else ""
        rows.append(f"| `{each.name}{labels}` | {each.help} | {each.absent or '(always there)'} |")
    rows.append(f"| `{LEFT_OUT.name}` | {LEFT_OUT.help} | {LEFT_OUT.absent} |")
    return "\n".join(rows)


def page(text: str) -> str:
    """The page with the table of now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{metrics_table()}\n\n{END}{after}"


def generated() -> Mapping[Path, str]:
    """Every file that is made, and its content."""
    directory = ROOT / "deploy/components/grafana"
    files = {directory / f"{each.uid}.json": dashboard(each) for each in DASHBOARDS}
    return files | {PAGE: page(PAGE.read_text())}


if __name__ == "__main__":
    for path, content in generated().items():
        path.write_text(content)
