//! What operators see: the text of `/metrics`, the event stream, the operator faces.

mod metrics;
mod samples;
