//! What a server's message needs at its admission and may lack (G11, P9).

use super::Traffic;
use crate::engine::decision::DropReason;
use crate::engine::outbox::Outbox;
use crate::engine::policy::Policy;
use crate::engine::queue::Item;
use crate::wire::jsonrpc::{Error, Kind, Message, code, member};
use crate::wire::mcpl::{self, method};

/// A kept message that lacks a feature set waits under its name behind this; what lacks a capability, under its path.
const FEATURE_SET: &str = "feature set ";
/// What a request for a stream needs beside its own capability.
const STREAMING: &str = "inferenceRequest.streaming";

/// What a message lacks under the grant of this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// This capability.
    Capability(&'static str),
    /// This feature set is declared, and not enabled.
    Enabled(String),
    /// This feature set is not declared.
    Declared(String),
}

impl Lack {
    /// What a kept message waits for.
    pub(super) fn awaited(&self) -> String {
        match self {
            Self::Capability(path) => (*path).to_owned(),
            Self::Enabled(name) | Self::Declared(name) => format!("{FEATURE_SET}{name}"),
        }
    }

    /// What a request is refused with.
    pub(super) fn error(&self) -> Error {
        match self {
            Self::Capability(path) => {
                let error = Error::new(code::NOT_GRANTED, format!("{path} is not granted"));
                error.with_data(serde_json::json!({ "capability": path }))
            }
            Self::Enabled(name) => {
                let error = Error::new(code::NOT_ENABLED, "the feature set is not enabled");
                error.with_data(serde_json::json!({ "featureSet": name }))
            }
            Self::Declared(name) => {
                let error = Error::new(code::UNKNOWN_FEATURE_SET, "the feature set is unknown");
                error.with_data(serde_json::json!({ "featureSet": name }))
            }
        }
    }
}

impl Traffic {
    /// What a message lacks now, if anything.
    pub(super) fn lack(&self, message: &Message) -> Option<Lack> {
        let name = message.method();
        let granted = self.policy.granted();
        let needs = mcpl::capability_of(name).filter(|path| !granted.has(path));
        if let Some(path) = needs {
            return Some(Lack::Capability(path));
        }
        if name == method::INFERENCE_REQUEST && !granted.has(STREAMING) && wants_stream(message) {
            return Some(Lack::Capability(STREAMING));
        }
        let named = feature_set_of(message)?;
        match self.policy.feature_set(&named) {
            Some(true) => None,
            Some(false) => Some(Lack::Enabled(named)),
            None => Some(Lack::Declared(named)),
        }
    }

    /// Refuses a live message for what it lacks.
    pub(super) fn deny(&mut self, item: &Item, lack: &Lack, out: &mut Outbox) {
        if item.message.kind() == Kind::Notification {
            return self.drop_read(DropReason::NotGranted, item.message.method(), 1, out);
        }
        self.refuse_server(item.epoch, &item.message, &lack.error(), out);
    }
}

/// Whether what a kept message waits for has come.
pub(super) fn has_come(policy: &Policy, awaited: &str) -> bool {
    match awaited.strip_prefix(FEATURE_SET) {
        Some(name) => policy.feature_set(name) == Some(true),
        None => policy.granted().has(awaited),
    }
}

/// The feature set under which a server sends a message, where it names one.
fn feature_set_of(message: &Message) -> Option<String> {
    if !matches!(
        message.method(),
        method::PUSH_EVENT | method::INFERENCE_REQUEST
    ) {
        return None;
    }
    feature_set_in(message)
}

/// The feature set that the params of a message name.
pub(super) fn feature_set_in(message: &Message) -> Option<String> {
    let text = member(message.params()?, "featureSet")?;
    // Anything but a string names no feature set that could be declared.
    let named = serde_json::from_str(text).unwrap_or_else(|_| text.to_owned());
    (text != "null").then_some(named)
}

fn wants_stream(message: &Message) -> bool {
    let params = message.params().unwrap_or_default();
    member(params, "stream") == Some("true")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rig::{CHAT, Rig, field};
    use super::*;
    use crate::engine::settings::{Mask, Settings};
    use crate::wire::methods::{METHODS, Needs, Sender};

    const SETS: &str = r#"{"capabilities":{"experimental":{"mcpl":{"version":"0.5","pushEvents":true,"inferenceRequest":{},"featureSets":{"on":{"uses":["pushEvents"]},"off":{"uses":["pushEvents"]}}}}}}"#;

    fn masked() -> Rig {
        Rig::with(Settings {
            mask: Mask {
                disabled_feature_sets: vec!["off".into()],
                ..Mask::default()
            },
            ..Settings::default()
        })
    }

    fn send(rig: &mut Rig, method: &str, params: &str) {
        rig.server(&format!(
            r#"{{"jsonrpc":"2.0","id":9,"method":"{method}","params":{params}}}"#
        ));
    }

    #[test]
    fn p9_a_live_message_under_a_feature_set_that_is_off_or_unknown_is_refused_with_its_name() {
        let mut rig = masked();
        rig.mcpl_host(1);
        rig.adopt(SETS);
        rig.accept();
        rig.take_sent();
        for method in ["push/event", "inference/request"] {
            for (named, wanted) in [("\"off\"", -32001), ("\"x\"", -32003), ("3", -32003)] {
                send(&mut rig, method, &format!(r#"{{"featureSet":{named}}}"#));
                let sent = rig.take_sent();
                assert_eq!(field(&sent[0], "error.code"), wanted, "{method} {named}");
                let name = named.trim_matches('"');
                assert_eq!(field(&sent[0], "error.data.featureSet"), name);
                assert!(rig.take_answers(1).is_empty());
            }
            for named in ["\"on\"", "null"] {
                send(&mut rig, method, &format!(r#"{{"featureSet":{named}}}"#));
                assert_eq!(field(&rig.take_answers(1)[0], "method"), method);
            }
            send(&mut rig, method, "{}");
            assert_eq!(rig.take_answers(1).len(), 1);
        }
        rig.server(r#"{"jsonrpc":"2.0","method":"push/event","params":{"featureSet":"x"}}"#);
        assert_eq!(rig.dropped("not_granted"), 1);
    }

    #[test]
    fn p9_a_kept_message_waits_until_its_feature_set_is_enabled() {
        let mut rig = masked();
        rig.mcpl_host(1);
        rig.adopt(SETS);
        send(
            &mut rig,
            "push/event",
            r#"{"eventId":"e","featureSet":"off"}"#,
        );
        rig.take_sent();
        rig.lose();
        rig.adopt(SETS);
        rig.accept();
        assert!(rig.take_answers(1).is_empty());
        rig.take_sent();
        rig.run(|traffic, at, out| traffic.configure(Settings::default().into(), at, out));
        let events = |rig: &mut Rig| {
            let lines = rig.take_answers(1).into_iter();
            lines.filter(|line| line.contains("push/event")).count()
        };
        assert_eq!(events(&mut rig), 0);
        rig.accept();
        assert_eq!(events(&mut rig), 1);
    }

    #[test]
    fn p9_a_feature_set_that_a_manifest_adds_waits_for_the_receipt_and_one_it_drops_ends_at_once() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.adopt(SETS);
        rig.accept();
        rig.take_sent();
        rig.server(r#"{"jsonrpc":"2.0","method":"mcpl/manifestChanged"}"#);
        let id = field(&rig.take_sent()[0], "id");
        rig.server(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"version":"0.5","pushEvents":true,"inferenceRequest":{{}},"featureSets":{{"on":{{"uses":["pushEvents"]}},"new":{{"uses":["pushEvents"]}}}}}}}}"#
        ));
        let update = rig.take_sent();
        let code = |rig: &mut Rig, name: &str| {
            send(rig, "push/event", &format!(r#"{{"featureSet":"{name}"}}"#));
            rig.take_sent()
                .first()
                .map(|line| field(line, "error.code"))
        };
        assert_eq!(code(&mut rig, "new"), Some((-32001).into()));
        assert_eq!(code(&mut rig, "off"), Some((-32003).into()));
        assert_eq!(code(&mut rig, "on"), None);
        let id = field(&update[0], "id");
        rig.server(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"accepted":true}}}}"#
        ));
        rig.take_sent();
        assert_eq!(code(&mut rig, "new"), None);
    }

    #[test]
    fn g11_what_a_server_sends_reaches_the_host_with_its_capability_and_is_refused_without() {
        let guarded = METHODS
            .iter()
            .filter(|method| method.misplaced(Sender::Server).is_none());
        for method in guarded {
            let (name, needs) = (method.name, method.capabilities());
            let mut rig = Rig::without(&[]);
            send(&mut rig, name, r#"{"channels":[{"id":"c"}]}"#);
            let reached = rig.take_answers(1);
            let is_for_us = matches!(method.needs, Needs::Nothing | Needs::Leave);
            assert_eq!(reached.len(), usize::from(!is_for_us), "{name}");
            if needs.is_empty() {
                continue;
            }
            assert_eq!(field(&reached[0], "method"), name);
            let mut rig = Rig::without(needs);
            send(&mut rig, name, r#"{"channels":[{"id":"c"}]}"#);
            rig.server(&format!(
                r#"{{"jsonrpc":"2.0","method":"{name}","params":{{}}}}"#
            ));
            let refused = &rig.take_sent()[0];
            assert_eq!(field(refused, "error.code"), code::NOT_GRANTED, "{name}");
            assert_eq!(field(refused, "error.data.capability"), needs[0], "{name}");
            assert_eq!(rig.dropped("not_granted"), 1, "{name}");
            assert!(rig.take_answers(1).is_empty(), "{name}");
        }
    }

    #[test]
    fn g11_a_stream_of_inference_needs_a_capability_of_its_own() {
        let streaming = CHAT.replace(
            r#""inferenceRequest":true"#,
            r#""inferenceRequest":{"streaming":true}"#,
        );
        for (advertised, passes) in [(SETS, false), (&streaming, true)] {
            let mut rig = Rig::new();
            rig.mcpl_host(1);
            rig.adopt(advertised);
            rig.accept();
            rig.take_sent();
            send(&mut rig, "inference/request", r#"{"stream":false}"#);
            assert_eq!(rig.take_answers(1).len(), 1);
            send(&mut rig, "inference/request", r#"{"stream":true}"#);
            let refused = rig.take_sent();
            assert_eq!(rig.take_answers(1).len(), usize::from(passes));
            if !passes {
                assert_eq!(field(&refused[0], "error.data.capability"), STREAMING);
            }
            rig.wait(Duration::from_secs(1));
        }
    }
}
