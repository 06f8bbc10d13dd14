"""Which servers are down, as was announced, and why: the dashboard to begin with."""

from parts import (
    BAD,
    BY_SERVER,
    EACH_SERVER,
    GOOD,
    NEUTRAL,
    RUNBOOKS,
    SERVER,
    WAITING,
    Query,
    any_is_bad,
    board,
    filled,
    lines,
    link,
    marks_of_gateway,
    number,
    of_server,
    per_minute,
    quantile,
    row,
    rows,
    timeline,
    to_one_server,
    words,
)

CALLS = "mcp_client_operation_duration_seconds"
DOWN = words(_0=("up", GOOD), _1=("down", BAD))
CONNECTED = words(_0=("not connected", WAITING), _1=("connected", NEUTRAL))


def servers():
    about = "Which MCP servers are down, as announced, and why."
    there = board("Tidegate / Servers", "tidegate-servers", about)
    return marks_of_gateway(filled(there, _down(), _attempts(), _queues(), _calls()))


def _down():
    latch = f"tidegate_server:down:latch{{{SERVER}}}"
    unwanted = of_server("state", 'state=~"disabled|ended"')
    away = f"{of_server('connected')} == 0 unless on (job, gateway, server) {unwanted} == 1"
    # What every gateway's absence sets off names none.
    select = 'job=~"$job", gateway=~"|$gateway", alertname=~"Tidegate.+", alertname!="TidegateWatchdog"'
    alert = f'ALERTS{{{select}, alertstate="firing"}}'
    return (
        row("Down, and not connected"),
        number(
            "Down",
            "Servers whose alert is on. It goes off when a connection has lasted, not at a handshake.",
            "none",
            Query(f"sum({latch})"),
            colors=any_is_bad(),
        ),
        number(
            "Not connected now",
            "Servers without a connection that should have one. A short drop is not down.",
            "none",
            Query(f"count({away}) or vector(0)"),
        ),
        rows(
            "Firing alerts",
            "Each with its runbook. What is held together by one alert is one row.",
            Query(alert),
            ["alertstate", "job", "instance", "channel"],
            {"alertname": "Alert", "gateway": "Gateway", "server": "Server", "severity": "Severity"},
            width=16,
            height=8,
            links=[("Alert", link("Runbook", f"{RUNBOOKS}/${{__value.raw}}.md"))],
        ),
        timeline(
            "Down, as announced",
            "The latch that TidegateServerDown alerts on: one red bar is one down and one clear.",
            DOWN,
            Query(latch, EACH_SERVER),
            width=24,
            height=7,
            links=[to_one_server()],
        ),
        timeline(
            "Connections",
            "Each bar is an epoch, from the handshake to the loss. What is short is no recovery.",
            CONNECTED,
            Query(of_server("connected"), EACH_SERVER),
            width=24,
            height=7,
            links=[to_one_server()],
        ),
    )


def _attempts():
    count = f"{of_server('failed_attempts')} / {of_server('down_after_attempts')}"
    age = f"{of_server('connection_age_seconds')} / {of_server('lasting_threshold_seconds')}"
    away = f"{of_server('away_seconds')} / ({of_server('down_after_seconds')} > 0)"
    ended = "tidegate_server_connections_ended_total"
    return (
        row("Attempts and connections"),
        lines(
            "Failed attempts, of the threshold",
            "In a row, early ends among them. Above 100 % it is down; back at 0 when a connection has lasted.",
            "percentunit",
            Query(count, EACH_SERVER),
            links=[to_one_server()],
        ),
        lines(
            "Age of the open connection, of the threshold",
            "At 100 % it has lasted. A saw that never gets there is a server that keeps dying.",
            "percentunit",
            Query(f"clamp_max({age}, 1)", EACH_SERVER),
            top=1,
            links=[to_one_server()],
        ),
        lines(
            "Early ends by reason",
            "Connections that ended before they had lasted, per minute.",
            "cpm",
            Query(per_minute(ended, "reason", 'lasted="false"'), "{{reason}}"),
            stacked=True,
        ),
        lines(
            "Attempts by outcome",
            "What became of dials and handshakes, per minute.",
            "cpm",
            Query(per_minute("tidegate_server_attempts_total", "outcome"), "{{outcome}}"),
            stacked=True,
        ),
        lines(
            "Waits now running",
            "The wait before the next attempt; 0 when none runs.",
            "s",
            Query(of_server("backoff_seconds"), EACH_SERVER),
            links=[to_one_server()],
        ),
        lines(
            "Time away, of the threshold",
            "The longest since a connection last lasted. At 100 % it is down, however few attempts that took.",
            "percentunit",
            Query(away, EACH_SERVER),
            links=[to_one_server()],
        ),
    )


def _queues():
    def share(queue):
        by = "max by (job, gateway, server, kind)"
        held = f"{of_server(f'{queue}_messages', by=by)} / {of_server(f'{queue}_messages_limit', by=by)}"
        return Query(f"{BY_SERVER} ({held})", EACH_SERVER)

    refused = "tidegate_server_messages_refused_total"
    dropped = "tidegate_server_messages_dropped_total"
    return (
        row("Messages that wait"),
        lines(
            "Held, of the bound",
            "Read from a server and waiting for its plane to open; requests or notifications, whichever are nearer.",
            "percentunit",
            share("held"),
            links=[to_one_server()],
        ),
        lines(
            "Kept, of the bound",
            "Kept over a loss of their server for its next epoch; requests or notifications, whichever are nearer.",
            "percentunit",
            share("kept"),
            links=[to_one_server()],
        ),
        lines(
            "Age of the oldest",
            "Of what is held and of what is kept.",
            "s",
            Query(of_server("held_oldest_age_seconds"), EACH_SERVER + " held"),
            Query(of_server("kept_oldest_age_seconds"), EACH_SERVER + " kept"),
            links=[to_one_server()],
        ),
        lines(
            "Drops by reason",
            "Messages that nobody gets, per minute. Some reasons are rules, and some are losses.",
            "cpm",
            Query(per_minute(dropped, "reason"), "{{reason}}"),
            stacked=True,
            width=12,
        ),
        lines(
            "Refusals by code",
            "Requests answered with an error of the gateway's own, per minute.",
            "cpm",
            Query(per_minute(refused, "code"), "{{code}}"),
            stacked=True,
            width=12,
        ),
    )


def _calls():
    by = "job, gateway, server"
    rate = f"sum by ({by}) (rate({CALLS}_count{{{SERVER}}}[$__rate_interval]))"
    failed = f'sum by ({by}) (rate({CALLS}_count{{{SERVER}, error_type!=""}}[$__rate_interval]))'
    return (
        row("Calls of hosts"),
        lines(
            "Calls",
            "Requests of hosts that were answered, per second.",
            "reqps",
            Query(rate, EACH_SERVER),
            links=[to_one_server()],
        ),
        lines(
            "Calls that failed",
            "The share answered with an error, of whatever kind.",
            "percentunit",
            Query(f"({failed} or {rate} * 0) / ({rate} > 0)", EACH_SERVER),
            top=1,
            links=[to_one_server()],
        ),
        lines(
            "Time of a call",
            "From a host's request to the server's answer, over all of the chosen servers.",
            "s",
            Query(quantile(0.5, CALLS), "half"),
            Query(quantile(0.99, CALLS), "99 in 100"),
        ),
    )
