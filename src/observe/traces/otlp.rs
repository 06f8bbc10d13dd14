//! The OTLP exporter that settings and `OTEL_*` variables make, over HTTP or gRPC. What goes wrong with it is told
//! without what a receiver said, and without headers.

use std::collections::HashMap;

use async_trait::async_trait;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use opentelemetry::{Key, KeyValue};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::tonic_types::metadata::MetadataMap;
use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{
    ExporterBuildError, Protocol as Wire, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
    WithTonicConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use secrecy::ExposeSecret as _;

use super::{Protocol, Settings};

/// Why there are no traces.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No exporter can be made of the settings.
    #[error("telemetry.otlp: {0}")]
    Exporter(String),
    /// The exporter's thread cannot be started.
    #[error("cannot start the exporter of traces: {0}")]
    Thread(#[from] std::io::Error),
}

/// Takes nothing for an answer that is none: to the exporter every 200 is a delivery, be it a proxy's page of HTML.
#[derive(Debug)]
struct Strict(reqwest::Client);

#[async_trait]
impl HttpClient for Strict {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.0.send_bytes(request).await?;
        if answer.status().is_success() && !is_of_otlp(&answer) {
            return Err("the answer is not of OTLP".into());
        }
        Ok(answer)
    }
}

/// Whether a receiver of OTLP may have said this. Some say it in JSON whatever they were asked in, or say nothing.
fn is_of_otlp(answer: &Response<Bytes>) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kinds = ["application/x-protobuf", "application/json"];
    answer.body().is_empty() || kinds.iter().any(|known| kind.starts_with(known))
}

/// Makes the exporter. Runs in the runtime that it is used in.
pub(super) fn exporter(name: &str, settings: &Settings) -> Result<SpanExporter, Error> {
    let mut exporter = match settings.protocol {
        Protocol::Http => over_http(settings)?,
        Protocol::Grpc => over_grpc(settings)?,
    };
    exporter.set_resource(&resource(name));
    Ok(exporter)
}

fn over_http(settings: &Settings) -> Result<SpanExporter, Error> {
    // A process has one provider of TLS; who comes second finds it there.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .timeout(settings.timeout)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| Error::Exporter(error.to_string()))?;
    let headers = settings.headers.iter();
    let headers: HashMap<String, String> = headers
        .map(|(name, value)| (name.clone(), value.expose_secret().to_owned()))
        .collect();
    SpanExporter::builder()
        .with_http()
        .with_http_client(Strict(client))
        .with_endpoint(&settings.endpoint)
        .with_protocol(Wire::HttpBinary)
        .with_timeout(settings.timeout)
        .with_headers(headers)
        .build()
        .map_err(unbuilt)
}

fn over_grpc(settings: &Settings) -> Result<SpanExporter, Error> {
    let headers = settings.headers.iter().filter_map(|(name, value)| {
        let name = name.parse::<HeaderName>().ok()?;
        let mut value = HeaderValue::from_str(value.expose_secret()).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    });
    let headers: HeaderMap = headers.collect();
    let mut builder = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(&settings.endpoint)
        .with_timeout(settings.timeout)
        .with_metadata(MetadataMap::from_headers(headers));
    if settings.endpoint.starts_with("https:") {
        builder = builder.with_tls_config(ClientTlsConfig::new().with_enabled_roots());
    }
    builder.build().map_err(unbuilt)
}

fn unbuilt(error: ExporterBuildError) -> Error {
    Error::Exporter(error.to_string())
}

/// Who tells: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` come first.
fn resource(name: &str) -> Resource {
    let said = Resource::builder().build();
    let missing = |key: &'static str| said.get_ref(&Key::from_static_str(key)).is_none();
    let unnamed = said
        .get_ref(&Key::from_static_str("service.name"))
        .is_none_or(|value| value.as_str().starts_with("unknown_service"));
    let own = [
        ("service.name", "tidegate", unnamed),
        ("service.instance.id", name, missing("service.instance.id")),
        (
            "service.version",
            env!("CARGO_PKG_VERSION"),
            missing("service.version"),
        ),
    ];
    let own = own.into_iter().filter(|(_, _, wanted)| *wanted);
    let own = own.map(|(key, value, _)| KeyValue::new(key, value.to_owned()));
    Resource::builder().with_attributes(own).build()
}
