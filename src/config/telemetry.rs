//! Where traces go: `telemetry.otlp`, and the `OTEL_*` variables for what the file leaves open. What cannot be used in
//! the file is a problem; in a variable, which other programs read too, it is a warning, and the default holds.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use reqwest::Url;
use secrecy::SecretString;

use super::Problem;
use super::file::{Otlp, OtlpProtocol, Text};
use super::interpolate::Env;
use super::problem::Scope;
use super::tree::Step;
use crate::observe::traces::{Protocol, Sampling, Settings};

/// Of one delivery.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Shorter than OpenTelemetry's five seconds: an epoch has to be seen although the gateway dies soon after.
const DELAY: Duration = Duration::from_millis(500);
const QUEUE: usize = 2_048;
const BATCH: usize = 512;
/// The longest queue that a variable can ask for.
const QUEUE_MAX: usize = 65_536;
const PATH: &str = "/v1/traces";

/// What is found on the way.
pub(super) struct Checks<'a> {
    scope: Scope<'a>,
    env: Env<'a>,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
}

impl<'a> Checks<'a> {
    pub(super) fn new(scope: Scope<'a>, env: Env<'a>) -> Self {
        Self {
            scope,
            env,
            problems: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Where traces go; `None` where none are wanted.
    pub(super) fn traces(&mut self, otlp: Option<Otlp>) -> Option<Settings> {
        let disabled = self.variable("OTEL_SDK_DISABLED");
        let wanted = self.is_wanted(otlp.is_some());
        let in_file = otlp.as_ref().and_then(|otlp| otlp.protocol);
        let protocol = in_file.map_or_else(|| self.protocol(), protocol_of);
        let endpoint = match &otlp {
            Some(otlp) => self.endpoint_in_file(otlp, protocol),
            None => self.endpoint(protocol),
        };
        let sampling = self.sampling(otlp.as_ref());
        let headers = self.headers(otlp);
        self.warn_of_compression();
        let queue = self.number("OTEL_BSP_MAX_QUEUE_SIZE", QUEUE as u64);
        let batch = self.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH as u64);
        let queue = usize::try_from(queue).map_or(QUEUE_MAX, |queue| queue.clamp(1, QUEUE_MAX));
        let settings = Settings {
            endpoint: endpoint?,
            protocol,
            headers,
            timeout: self.timeout(),
            delay: self.millis("OTEL_BSP_SCHEDULE_DELAY", DELAY),
            queue,
            batch: usize::try_from(batch).map_or(queue, |batch| batch.clamp(1, queue)),
            sampling,
        };
        let disabled = disabled.is_some_and(|value| value.eq_ignore_ascii_case("true"));
        (wanted && !disabled).then_some(settings)
    }

    /// `OTEL_TRACES_EXPORTER` decides, else whether somebody says where traces go.
    fn is_wanted(&mut self, in_file: bool) -> bool {
        let exporter = self.variable("OTEL_TRACES_EXPORTER");
        match exporter.as_deref() {
            Some("none") => false,
            Some("otlp") => true,
            other => {
                if other.is_some() {
                    self.warn("OTEL_TRACES_EXPORTER", "write otlp or none");
                }
                in_file || self.otlp("ENDPOINT").is_some()
            }
        }
    }

    fn protocol(&mut self) -> Protocol {
        match self.otlp("PROTOCOL") {
            None => Protocol::Http,
            Some((name, value)) => match value.as_str() {
                "grpc" => Protocol::Grpc,
                "http/protobuf" => Protocol::Http,
                _ => {
                    self.warn(&name, "write grpc or http/protobuf");
                    Protocol::Http
                }
            },
        }
    }

    fn endpoint_in_file(&mut self, otlp: &Otlp, protocol: Protocol) -> Option<String> {
        let url = address(&otlp.endpoint, protocol, true);
        if url.is_none() {
            self.refuse(&["endpoint"], ENDPOINT);
        }
        url
    }

    fn endpoint(&mut self, protocol: Protocol) -> Option<String> {
        let default = match protocol {
            Protocol::Http => "http://127.0.0.1:4318/v1/traces",
            Protocol::Grpc => "http://127.0.0.1:4317",
        };
        let Some((name, value)) = self.otlp("ENDPOINT") else {
            return Some(default.to_owned());
        };
        let is_base = !name.contains("TRACES");
        let url = address(&value, protocol, is_base);
        if url.is_none() {
            self.warn(&name, ENDPOINT);
        }
        url
    }

    fn headers(&mut self, otlp: Option<Otlp>) -> Vec<(String, SecretString)> {
        let headers = otlp.and_then(|otlp| otlp.headers).unwrap_or_default();
        let mut usable = Vec::new();
        for (name, Text(value)) in headers {
            if name.parse::<HeaderName>().is_err() {
                self.refuse(
                    &["headers", &name],
                    "is no name of a header; write one like `authorization`",
                );
            } else if HeaderValue::from_str(&value).is_err() {
                self.refuse(
                    &["headers", &name],
                    "cannot be sent in a header; write it on one line, without control characters",
                );
            } else {
                usable.push((name, value.into()));
            }
        }
        usable
    }

    fn sampling(&mut self, otlp: Option<&Otlp>) -> Sampling {
        if let Some(ratio) = otlp.and_then(|otlp| otlp.sample_ratio) {
            return Sampling {
                ratio: ratio.0,
                parent_based: true,
            };
        }
        let Some(sampler) = self.variable("OTEL_TRACES_SAMPLER") else {
            return Sampling::default();
        };
        let (parent_based, root) = match sampler.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, sampler.as_str()),
        };
        let ratio = match root {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => self.ratio(),
            _ => {
                let text =
                    "write always_on, always_off, traceidratio, or one of these after parentbased_";
                self.warn("OTEL_TRACES_SAMPLER", text);
                return Sampling::default();
            }
        };
        Sampling {
            ratio,
            parent_based,
        }
    }

    fn ratio(&mut self) -> f64 {
        let name = "OTEL_TRACES_SAMPLER_ARG";
        let given = self.variable(name);
        let ratio = given.as_ref().and_then(|text| text.parse().ok());
        let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
        if given.is_some() && ratio.is_none() {
            self.warn(name, "write a number from 0 to 1");
        }
        ratio.unwrap_or(1.0)
    }

    fn timeout(&mut self) -> Duration {
        let name = self.otlp("TIMEOUT").map(|(name, _)| name);
        name.map_or(TIMEOUT, |name| self.millis(&name, TIMEOUT))
    }

    fn warn_of_compression(&mut self) {
        if let Some((name, value)) = self.otlp("COMPRESSION")
            && value != "none"
        {
            self.warn(&name, "this version sends traces uncompressed");
        }
    }

    fn millis(&mut self, name: &str, default: Duration) -> Duration {
        let millis = u64::try_from(default.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.number(name, millis))
    }

    fn number(&mut self, name: &str, default: u64) -> u64 {
        let Some(given) = self.variable(name) else {
            return default;
        };
        given.parse().unwrap_or_else(|_| {
            self.warn(name, "write a whole number");
            default
        })
    }

    /// One of `OTEL_EXPORTER_OTLP_TRACES_…` and `OTEL_EXPORTER_OTLP_…`, and its name.
    fn otlp(&self, what: &str) -> Option<(String, String)> {
        let of_traces = format!("OTEL_EXPORTER_OTLP_TRACES_{what}");
        let of_all = format!("OTEL_EXPORTER_OTLP_{what}");
        [of_traces, of_all]
            .into_iter()
            .find_map(|name| self.variable(&name).map(|value| (name, value)))
    }

    /// An empty variable is as if it were not there.
    fn variable(&self, name: &str) -> Option<String> {
        let value = (self.env)(name)?.trim().to_owned();
        (!value.is_empty()).then_some(value)
    }

    fn refuse(&mut self, below: &[&str], message: &str) {
        let path = ["telemetry", "otlp"].iter().chain(below);
        let path: Vec<_> = path.map(|name| Step::Key((*name).to_owned())).collect();
        self.problems.push(self.scope.at(&path, message));
    }

    /// The value may be a secret, so it is not shown.
    fn warn(&mut self, name: &str, message: &str) {
        let text = format!("the variable {name}: {message}");
        self.warnings.push(self.scope.at(&[], text));
    }
}

const ENDPOINT: &str = "write the URL of an OTLP receiver without a user, as in `http://127.0.0.1:4318`; a credential goes into \
                        a header";

fn protocol_of(protocol: OtlpProtocol) -> Protocol {
    match protocol {
        OtlpProtocol::HttpProtobuf => Protocol::Http,
        OtlpProtocol::Grpc => Protocol::Grpc,
    }
}

/// The address that spans are sent to. A base over HTTP gets the path of traces, unless it has it.
fn address(given: &str, protocol: Protocol, is_base: bool) -> Option<String> {
    let url = Url::parse(given).ok()?;
    let usable = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none();
    let base = given.trim_end_matches('/');
    let grows = is_base && protocol == Protocol::Http && !base.ends_with(PATH);
    let address = if grows {
        format!("{base}{PATH}")
    } else {
        given.to_owned()
    };
    usable.then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_gets_the_path_of_traces_over_http_alone() {
        let http = |given| address(given, Protocol::Http, true);
        for base in ["http://r:4318", "http://r:4318/", "http://r:4318/v1/traces"] {
            assert_eq!(http(base).as_deref(), Some("http://r:4318/v1/traces"));
        }
        let under = http("https://r/otlp/");
        assert_eq!(under.as_deref(), Some("https://r/otlp/v1/traces"));
        let whole = address("http://r/x", Protocol::Http, false);
        assert_eq!(whole.as_deref(), Some("http://r/x"));
        let grpc = address("http://r:4317", Protocol::Grpc, true);
        assert_eq!(grpc.as_deref(), Some("http://r:4317"));
    }

    #[test]
    fn what_is_no_address_of_a_receiver_is_refused() {
        for bad in ["", "r:4318", "ws://r", "http://", "http://u:p@r"] {
            assert_eq!(address(bad, Protocol::Http, true), None, "{bad}");
        }
    }
}
