"""What all dashboards share: the variables, the links, the annotations, and how a panel is put together.

A threshold is a query of its own, drawn as a dashed line or divided by: no number of a configuration stands here.
"""

import json

from grafana_foundation_sdk.builders import common as looks
from grafana_foundation_sdk.builders import dashboard, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model

SOURCE = common.DataSourceRef(type_val="prometheus", uid="$datasource")
GATEWAY = 'job=~"$job", gateway=~"$gateway"'
SERVER = f'{GATEWAY}, server=~"$server"'
# Identity of a server in the alerts, too: an instance that moves is no other server.
BY_SERVER = "max by (job, gateway, server)"
EACH_SERVER = "{{gateway}} / {{server}}"

STATUS_PAGE = "http://${instance}/"
RUNBOOKS = "${runbooks}"
GOOD, BAD, WAITING, NEUTRAL = "green", "red", "orange", "blue"


def of_server(metric, labels="", by=BY_SERVER):
    """A gauge of the chosen servers; `labels` are more matchers."""
    return f"{by} (tidegate_server_{metric}{{{_more(SERVER, labels)}}})"


def per_minute(metric, by, labels="", select=SERVER):
    """How fast a counter grows."""
    return f"sum by ({by}) (rate({metric}{{{_more(select, labels)}}}[$__rate_interval])) * 60"


def quantile(share, histogram, select=SERVER, by=""):
    """The value that this share of a histogram's observations stays below."""
    rate = f"rate({histogram}_bucket{{{select}}}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by ({_more('le', by)}) ({rate}))"


def _more(first, second):
    return f"{first}, {second}" if second else first


class Query:
    """PromQL and the name of what it gives; `dashed` for a threshold beside the values."""

    def __init__(self, expr, legend="", dashed=False):
        self.expr, self.legend, self.dashed = expr, legend, dashed

    def target(self, number, instant=False, as_table=False):
        query = prometheus.Dataquery().expr(self.expr).legend_format(self.legend or "__auto").ref_id(_ref(number))
        query = query.instant() if instant else query.range()
        return query.format("table") if as_table else query


def limit(expr, legend):
    """A threshold, as it is exported."""
    return Query(expr, legend, dashed=True)


def _ref(number):
    return "ABCDEFGH"[number]


def _panel(builder, title, about, unit, width, height):
    return builder.title(title).description(about).unit(unit).datasource(SOURCE).span(width).height(height)


def lines(title, about, unit, *queries, width=8, height=8, top=None, stacked=False, links=()):
    """Values over time. `top` is the axis's end where it is known."""
    panel = _panel(timeseries.Panel(), title, about, unit, width, height)
    panel = panel.fill_opacity(10).line_width(1).min(0).show_points(common.VisibilityMode.AUTO)
    panel = panel.legend(
        looks.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    panel = panel.tooltip(
        looks.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
    )
    if top is not None:
        panel = panel.max(top)
    if stacked:
        panel = panel.stacking(looks.StackingConfig().mode(common.StackingMode.NORMAL)).fill_opacity(30)
    for number, query in enumerate(queries):
        panel = panel.with_target(query.target(number))
        if query.dashed:
            panel = panel.override_by_query(_ref(number), _dashes())
    return panel.data_links(list(links)) if links else panel


def _dashes():
    style = {"fill": "dash", "dash": [10, 10]}
    looks_of_it = {"custom.lineStyle": style, "custom.fillOpacity": 0, "color": {"mode": "fixed", "fixedColor": BAD}}
    return [model.DynamicConfigValue(id_val=key, value=value) for key, value in looks_of_it.items()]


def number(title, about, unit, query, mapping=None, colors=None, width=4, height=4, none="–", text=False):
    """One value now. `colors` are pairs of a value and the colour from there on; `text` shows the name instead."""
    panel = _panel(stat.Panel(), title, about, unit, width, height).no_value(none)
    panel = panel.with_target(query.target(0, instant=True)).graph_mode(common.BigValueGraphMode.NONE)
    panel = panel.reduce_options(looks.ReduceDataOptions().calcs(["lastNotNull"]))
    if text:
        panel = panel.text_mode(common.BigValueTextMode.NAME)
    if mapping:
        panel = panel.mappings([mapping])
    panel = panel.color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    return panel.thresholds(_steps(colors or [(None, NEUTRAL)]))


def _steps(colors):
    steps = [model.Threshold(value=value, color=color) for value, color in colors]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)


def any_is_bad():
    """Of a count of what should not be."""
    return [(None, GOOD), (1.0, BAD)]


def timeline(title, about, mapping, *queries, width=24, height=6, links=()):
    """States over time, a row each."""
    panel = _panel(statetimeline.Panel(), title, about, "none", width, height).mappings([mapping])
    panel = panel.fill_opacity(80).line_width(0).row_height(0.8).show_value(common.VisibilityMode.NEVER)
    panel = panel.legend(
        looks.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    panel = panel.color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    for place, query in enumerate(queries):
        panel = panel.with_target(query.target(place))
    return panel.data_links(list(links)) if links else panel


def rows(title, about, query, hidden, names, unit="none", width=8, height=6, links=()):
    """A table of the labels that a query gives now, without the `hidden` ones. `links` are pairs: a column, a link."""
    panel = _panel(table.Panel(), title, about, unit, width, height).with_target(
        query.target(0, instant=True, as_table=True)
    )
    organize = {"excludeByName": dict.fromkeys(["Time", "Value", "__name__", *hidden], True), "renameByName": names}
    panel = panel.with_transformation(model.DataTransformerConfig(id_val="organize", options=organize))
    for column, link in links:
        value = [{"title": link.build().title, "url": link.build().url, "targetBlank": True}]
        panel = panel.override_by_name(column, [model.DynamicConfigValue(id_val="links", value=value)])
    return panel


def words(**texts):
    """Names and colours of values: `_0=("up", GOOD)`."""
    options = {
        key.removeprefix("_"): model.ValueMappingResult(text=text, color=color, index=index)
        for index, (key, (text, color)) in enumerate(texts.items())
    }
    return model.ValueMap(options=options)


def link(title, url):
    """A link of a series, a cell or the dashboard."""
    return dashboard.DashboardLink(title).type(model.DashboardLinkType.LINK).url(url).target_blank(True)


def to_one_server():
    """From a series to everything about its server."""
    return link(
        "Everything about this server",
        "/d/tidegate-server?${datasource:queryparam}&${job:queryparam}&${__url_time_range}"
        "&var-gateway=${__field.labels.gateway}&var-server=${__field.labels.server}",
    )


def traces_of_server():
    """The epochs of the chosen server, in a Tempo data source whose uid is the variable `traces`."""
    query = {
        "refId": "A",
        "datasource": {"type": "tempo", "uid": "${traces}"},
        "queryType": "traceql",
        "query": '{ name =~ "mcpl.epoch.*" && span.tidegate.server =~ "${server:regex}" }',
    }
    pane = {"datasource": "${traces}", "queries": [query], "range": {"from": "${__from}", "to": "${__to}"}}
    panes = json.dumps({"t": pane}, separators=(",", ":")).replace(" ", "%20").replace('"', "%22").replace("&", "%26")
    return link("Traces", f"/explore?schemaVersion=1&panes={panes}")


def _choice(name, label, metric, about, many):
    variable = dashboard.QueryVariable(name).label(label).description(about).datasource(SOURCE)
    variable = variable.query(f"label_values({metric}, {name})").sort(model.VariableSort.ALPHABETICAL_ASC)
    variable = variable.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
    return variable.multi(True).include_all(True).all_value(".+") if many else variable


def _text(name, label, about, default):
    option = model.VariableOption(text=default, value=default, selected=True)
    variable = dashboard.TextBoxVariable(name).label(label).description(about).default_value(default)
    return variable.current(option).hide(model.VariableHide.HIDE_VARIABLE)


def variables(board, many_gateways=True, many_servers=True):
    """Adds the variables, each choosing among what the ones before it leave."""
    up = 'up{job=~"$job", gateway=~"$gateway"}'
    connected = f"tidegate_server_connected{{{GATEWAY}}}"
    instance = _choice("instance", "Address", up, "Where the gateway is scraped, which is where its page is.", False)
    for variable in (
        dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        _choice("job", "Job", "tidegate_build_info", "The scrape job; the alerts know it as tidegate.", True),
        _choice("gateway", "Gateway", 'tidegate_build_info{job=~"$job"}', "Its name, from the scrape.", many_gateways),
        _choice("server", "Server", connected, "Its id in the configuration.", many_servers),
        instance.hide(model.VariableHide.HIDE_VARIABLE),
        _text("runbooks", "Runbooks", "The URL at which docs/runbooks is served.", "https://runbooks.example/tidegate"),
        _text("traces", "Traces", "The uid of the Tempo data source that has the gateway's traces.", "tempo"),
    ):
        board = board.with_variable(variable)
    return board


def _mark(name, color, expr, text, dated=False):
    """An annotation: where `expr` is above 0, or, `dated`, at the instants in milliseconds that are its values."""
    mark = dashboard.AnnotationQuery().name(name).datasource(SOURCE).enable(True).icon_color(color).expr(expr)
    mark = mark.title_format(name).text_format(text).tag_keys("gateway,server")
    return mark.use_value_for_time(True) if dated else mark


def grew(metric, labels, by, select=SERVER):
    """Where a counter grew since the step before."""
    return f"sum by ({by}) (increase({metric}{{{_more(select, labels)}}}[$__interval])) > 0"


def marks_of_server(board):
    """Adds the decisions that make and end an episode."""
    instant = "{}(tidegate_server_{}_timestamp_seconds{{{}}}) * 1000 > 0"
    by = "max by (gateway, server) "
    episodes = "tidegate_server_episodes_total"
    halted = f'max by (gateway, server, state) (tidegate_server_state{{{SERVER}, state=~"halted|refused|auth"}}) == 1'
    return (
        board.annotation(_mark("Down", BAD, instant.format(by, "down_since", SERVER), "{{server}} is down", dated=True))
        .annotation(_mark("Clear", GOOD, grew(episodes, 'edge="clear"', "gateway, server"), "{{server}} is clear"))
        .annotation(
            _mark(
                "Lasted",
                NEUTRAL,
                instant.format(by, "lasted", SERVER),
                "A connection to {{server}} has lasted",
                dated=True,
            )
        )
        .annotation(_mark("No retry helps", "purple", halted, "{{server}} is {{state}}"))
    )


def marks_of_gateway(board):
    """Adds starts of the gateway and changes of its configuration."""
    instant = "max by (gateway) ({}{{{}}}) * 1000 > 0"
    started = instant.format("process_start_time_seconds", GATEWAY)
    loaded = instant.format("tidegate_config_last_reload_success_timestamp_seconds", GATEWAY)
    return board.annotation(_mark("Started", WAITING, started, "{{gateway}} started", dated=True)).annotation(
        _mark("Loaded", "purple", loaded, "{{gateway}} loaded its configuration", dated=True)
    )


def board(title, uid, about, **choices):
    """An empty dashboard with the variables and links that all have."""
    empty = dashboard.Dashboard(title).uid(uid).description(about).tags(["tidegate"]).readonly()
    empty = empty.time("now-6h", "now").refresh("30s").timezone("browser").tooltip(model.DashboardCursorSync.CROSSHAIR)
    others = dashboard.DashboardLink("Tidegate").type(model.DashboardLinkType.DASHBOARDS).tags(["tidegate"])
    empty = empty.link(others.include_vars(True).keep_time(True).as_dropdown(False))
    for more in (link("Status page", STATUS_PAGE), link("Runbooks", RUNBOOKS), traces_of_server()):
        empty = empty.link(more)
    return variables(empty, **choices)


def filled(there, *parts):
    """Adds parts, each a heading and its panels."""
    for heading, *panels in parts:
        there = there.with_row(heading)
        for panel in panels:
            there = there.with_panel(panel)
    return there


def row(title):
    """A heading over the panels that follow."""
    return dashboard.Row(title)
