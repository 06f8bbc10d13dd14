"""The process itself: hosts, health of telemetry, its loop, memory and descriptors."""

from parts import (
    BAD,
    GATEWAY,
    GOOD,
    SERVER,
    Query,
    any_is_bad,
    board,
    filled,
    limit,
    lines,
    marks_of_gateway,
    number,
    per_minute,
    quantile,
    row,
    rows,
    words,
)

CALLS = "mcp_server_operation_duration_seconds"
EACH = "{{gateway}}"


def gateway():
    about = "The gateway's own process, and what hosts see of it."
    there = board("Tidegate / Gateway", "tidegate-gateway", about)
    return marks_of_gateway(filled(there, _now(), _calls(), _servers(), _health(), _process()))


def _now():
    fine = [(None, BAD), (1.0, GOOD)]
    yes, no = words(_0=("no", BAD), _1=("yes", GOOD)), words(_0=("yes", GOOD), _1=("no", BAD))
    build = f"tidegate_build_info{{{GATEWAY}}}"
    return (
        row("Now"),
        number(
            "Answers",
            "Whether the last scrape of every chosen gateway was answered.",
            "none",
            Query(f"min(up{{{GATEWAY}}})"),
            yes,
            fine,
        ),
        number(
            "Configuration in force",
            "Whether what holds is what the file says.",
            "none",
            Query(f"min(tidegate_config_last_reload_successful{{{GATEWAY}}})"),
            yes,
            fine,
        ),
        number(
            "State directory",
            "Whether it can be written.",
            "none",
            Query(f"max(tidegate_journal_failing{{{GATEWAY}}})"),
            no,
            any_is_bad(),
        ),
        number(
            "Up for",
            "Since the process started.",
            "s",
            Query(f"min(time() - process_start_time_seconds{{{GATEWAY}}})"),
        ),
        rows(
            "What runs",
            "The build.",
            Query(build),
            ["instance", "job", "name"],
            {"gateway": "Gateway", "version": "Version", "revision": "Revision", "rustc": "Compiler"},
            width=8,
            height=4,
        ),
    )


def _calls():
    rate = f"sum by (mcp_method_name) (rate({CALLS}_count{{{GATEWAY}}}[$__rate_interval]))"
    failed = f'sum by (error_type) (rate({CALLS}_count{{{GATEWAY}, error_type!=""}}[$__rate_interval]))'
    burn = "tidegate_gateway:call_error_ratio:{}{{{}}}"
    in_flight = f"sum by (gateway) (tidegate_requests_in_flight{{{SERVER}}})"
    return (
        row("Hosts and their calls"),
        lines(
            "Sessions",
            "Open sessions of hosts and clients.",
            "none",
            Query(f"sum by (gateway, face) (tidegate_host_sessions{{{GATEWAY}}})", EACH + " {{face}}"),
        ),
        lines(
            "Sessions opened",
            "Per minute. Many beside few open ones are hosts that do not stay.",
            "cpm",
            Query(
                per_minute("tidegate_host_sessions_opened_total", "gateway, face", select=GATEWAY),
                EACH + " {{face}}",
            ),
        ),
        lines("In flight", "Requests of hosts that no server has answered yet.", "none", Query(in_flight, EACH)),
        lines(
            "Calls",
            "Requests of hosts that were answered, per second.",
            "reqps",
            Query(rate, "{{mcp_method_name}}"),
        ),
        lines("Errors by kind", "Of calls, per second.", "reqps", Query(failed, "{{error_type}}"), stacked=True),
        lines(
            "Time of a call",
            "From a host's request to its answer.",
            "s",
            Query(quantile(0.5, CALLS, GATEWAY), "half"),
            Query(quantile(0.99, CALLS, GATEWAY), "99 in 100"),
        ),
        lines(
            "Calls failed by the gateway",
            "The recorded ratios that TidegateErrorBudgetBurn alerts on.",
            "percentunit",
            *(
                Query(burn.format(window, GATEWAY), f"{EACH} {window.removeprefix('rate')}")
                for window in ("rate5m", "rate30m", "rate1h", "rate6h")
            ),
            width=24,
            height=7,
        ),
    )


def _servers():
    state = f"sum by (state) (tidegate_server_state{{{SERVER}}})"

    def both(histogram):
        return Query(quantile(0.5, histogram, GATEWAY), "half"), Query(quantile(0.99, histogram, GATEWAY), "99 in 100")

    return (
        row("Servers, all together"),
        lines("States", "How many servers are in which.", "none", Query(state, "{{state}}"), stacked=True),
        lines("Time of a dial", "To the completed handshake.", "s", *both("tidegate_dial_duration_seconds")),
        lines(
            "Time of an exchange",
            "Of a policy exchange, to its settling.",
            "s",
            *both("tidegate_exchange_duration_seconds"),
            width=4,
        ),
        lines("Time of a hold", "How long planes were closed.", "s", *both("tidegate_hold_duration_seconds"), width=4),
    )


def _health():
    lag, dropped = "tidegate_loop_lag_seconds", "tidegate_telemetry_dropped_total"
    return (
        row("Telemetry and configuration"),
        lines(
            "Lag of the loop",
            "How late the gateway's own loop wakes. Verdicts about liveness hang on it.",
            "s",
            Query(quantile(0.5, lag, GATEWAY, "gateway"), EACH + " half"),
            Query(quantile(0.95, lag, GATEWAY, "gateway"), EACH + " 95 in 100"),
        ),
        lines(
            "Telemetry dropped",
            "Per minute, by signal: whoever takes it is too slow, or not there.",
            "cpm",
            Query(per_minute(dropped, "gateway, signal, reason", select=GATEWAY), EACH + " {{signal}}: {{reason}}"),
        ),
        lines(
            "Loads of the configuration",
            "By what became of them, per minute.",
            "cpm",
            Query(
                per_minute("tidegate_config_reloads_total", "gateway, outcome", select=GATEWAY),
                EACH + " {{outcome}}",
            ),
        ),
        lines(
            "Time of a scrape",
            "As Prometheus measured it.",
            "s",
            Query(f"max by (gateway) (scrape_duration_seconds{{{GATEWAY}}})", EACH),
            width=12,
        ),
        lines(
            "Samples of a scrape",
            "They grow with the number of servers.",
            "none",
            Query(f"max by (gateway) (scrape_samples_scraped{{{GATEWAY}}})", EACH),
            width=12,
        ),
    )


def _process():
    def of(metric):
        return f"max by (gateway) ({metric}{{{GATEWAY}}})"

    cpu = f"sum by (gateway) (rate(process_cpu_seconds_total{{{GATEWAY}}}[$__rate_interval]))"
    return (
        row("Process"),
        lines("Processor", "Cores in use.", "none", Query(cpu, EACH), width=6),
        lines("Memory", "Resident.", "bytes", Query(of("process_resident_memory_bytes"), EACH), width=6),
        lines(
            "Descriptors",
            "Open ones, of those that it may open (dashed).",
            "none",
            Query(of("process_open_fds"), EACH),
            limit(of("process_max_fds"), EACH + " at most"),
            width=6,
        ),
        lines("Threads", "Of the process.", "none", Query(of("process_threads"), EACH), width=6),
    )
