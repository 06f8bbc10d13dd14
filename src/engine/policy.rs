//! The policy exchange of one server (P1 to P7): what is offered, what was accepted, and what is granted by it now. It
//! sends nothing and knows no capability by name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::decision::Exchange;
use crate::ids::Epoch;
use crate::wire::capability::CapabilitySet;
use crate::wire::jsonrpc::member;

/// The exchange and the grant of the serving epoch.
#[derive(Debug, Default)]
pub(super) struct Policy {
    granted: CapabilitySet,
    /// The declared feature sets, and whether each is enabled (P9).
    feature_sets: FeatureSets,
    wanted: Offer,
    told: Option<String>,
    /// What was told last got no receipt.
    unanswered: bool,
    running: Option<Running>,
    settled: bool,
    receipt: Option<String>,
}

/// What is offered: the params of a `featureSets/update`, and the capabilities that they name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    /// Granted at the receipt.
    pub(super) granted: CapabilitySet,
    /// The declared feature sets, and whether each is enabled at the receipt.
    pub(super) feature_sets: FeatureSets,
    /// JSON text.
    pub(super) params: String,
}

/// Feature sets by name, each enabled or not.
pub(super) type FeatureSets = BTreeMap<String, bool>;

impl Offer {
    /// The feature sets that it enables.
    pub(super) fn enabled(&self) -> BTreeSet<&str> {
        let enabled = self.feature_sets.iter().filter(|(_, enabled)| **enabled);
        enabled.map(|(name, _)| name.as_str()).collect()
    }

    /// Its feature sets, each enabled where it is so here and in `other`.
    fn common(&self, other: &FeatureSets) -> FeatureSets {
        let each = self.feature_sets.iter();
        each.map(|(name, on)| (name.clone(), *on && other.get(name) == Some(&true)))
            .collect()
    }
}

#[derive(Debug)]
struct Running {
    epoch: Epoch,
    offer: Offer,
    since: Instant,
}

/// How a request for an exchange ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reply<'a> {
    /// With this result.
    Result(&'a str),
    /// With this error, as JSON text.
    Error(&'a str),
    /// Not at all, in time.
    Silence,
}

/// A settled exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settled {
    /// How.
    pub(super) outcome: Exchange,
    /// From the Request on.
    pub(super) took: Duration,
    /// For an operator; may be empty.
    pub(super) note: String,
    /// The server asked that its refusal end the connection.
    pub(super) ends: bool,
}

impl Policy {
    /// What is granted now.
    pub(super) fn granted(&self) -> CapabilitySet {
        self.granted
    }

    /// Whether a feature set is enabled now; `None` where it is not declared (P9).
    pub(super) fn feature_set(&self, name: &str) -> Option<bool> {
        self.feature_sets.get(name).copied()
    }

    /// Whether the last exchange got no receipt, so that the same can be asked for again (P3).
    pub(super) fn is_unanswered(&self) -> bool {
        self.unanswered && !self.is_busy()
    }

    /// Whether the first exchange of this epoch has settled (G2).
    pub(super) fn is_settled(&self) -> bool {
        self.settled
    }

    /// Whether an exchange runs, or is to.
    pub(super) fn is_busy(&self) -> bool {
        self.running.is_some() || self.is_due()
    }

    /// The last receipt, as JSON text. It outlives its epoch, for hosts that ask while the server is away.
    pub(super) fn receipt(&self) -> Option<&str> {
        self.receipt.as_deref()
    }

    /// A transport without MCPL serves: nothing to exchange.
    pub(super) fn open_without(&mut self) {
        *self = Self {
            settled: true,
            ..Self::default()
        };
    }

    /// A transport with MCPL serves: its grant is empty until the exchange of this offer settles.
    pub(super) fn open(&mut self, offer: Offer) {
        *self = Self {
            wanted: offer,
            receipt: self.receipt.take(),
            ..Self::default()
        };
    }

    /// Asks for another grant. What it takes away ends at once (P3); what it adds waits for a receipt.
    pub(super) fn want(&mut self, offer: Offer) {
        self.granted = self.granted.and(offer.granted);
        self.feature_sets = offer.common(&self.feature_sets);
        self.wanted = offer;
        if self.unanswered {
            self.told = None;
        }
    }

    /// The params of the exchange to start now, if one is due and none runs (P6).
    pub(super) fn start(&mut self, epoch: Epoch, now: Instant) -> Option<String> {
        if self.running.is_some() || !self.is_due() {
            return None;
        }
        let offer = self.wanted.clone();
        let params = offer.params.clone();
        self.told = Some(params.clone());
        self.unanswered = false;
        self.running = Some(Running {
            epoch,
            offer,
            since: now,
        });
        Some(params)
    }

    fn is_due(&self) -> bool {
        !self.wanted.params.is_empty() && self.told.as_ref() != Some(&self.wanted.params)
    }

    /// Settles the exchange that runs on `epoch`; `None` where none does (P5, P6).
    pub(super) fn settle(
        &mut self,
        epoch: Epoch,
        reply: Reply<'_>,
        grant_without_receipt: bool,
        now: Instant,
    ) -> Option<Settled> {
        let running = self.running.take_if(|running| running.epoch == epoch)?;
        let mut verdict = Verdict::of(reply);
        self.settled = true;
        // What was reduced meanwhile stays reduced (P3).
        let offered = running.offer.granted.and(self.wanted.granted);
        let enabled = self.wanted.common(&running.offer.feature_sets);
        let (granted, feature_sets) = match verdict.grants {
            Grants::Offered => (offered, enabled),
            Grants::Unanswered if grant_without_receipt => (offered, enabled),
            Grants::Unanswered => (self.granted, self.wanted.common(&self.feature_sets)),
            Grants::Nothing => (CapabilitySet::NONE, self.wanted.common(&FeatureSets::new())),
        };
        self.granted = granted;
        self.feature_sets = feature_sets;
        if matches!(verdict.outcome, Exchange::Error | Exchange::Timeout) {
            verdict.note += self.consequence(grant_without_receipt);
            self.unanswered = true;
        }
        self.receipt = Some(verdict.receipt);
        Some(Settled {
            outcome: verdict.outcome,
            took: now.saturating_duration_since(running.since),
            note: verdict.note,
            ends: verdict.ends,
        })
    }

    /// What an exchange without a receipt led to.
    fn consequence(&self, grant_without_receipt: bool) -> &'static str {
        if self.granted.is_empty() {
            "; it is used without MCPL"
        } else if grant_without_receipt {
            "; `grantWithoutReceipt` grants without one"
        } else {
            "; what it accepted before stays granted"
        }
    }

    /// The transport is gone, and with it the grant (P5). Tells how long a running exchange had lasted.
    pub(super) fn close(&mut self, now: Instant) -> Option<Duration> {
        let running = self.running.take();
        *self = Self {
            receipt: self.receipt.take(),
            ..Self::default()
        };
        running.map(|running| now.saturating_duration_since(running.since))
    }
}

enum Grants {
    Offered,
    Nothing,
    Unanswered,
}

struct Verdict {
    outcome: Exchange,
    grants: Grants,
    note: String,
    ends: bool,
    receipt: String,
}

impl Verdict {
    fn of(reply: Reply<'_>) -> Self {
        match reply {
            Reply::Result(result) => Self::of_receipt(result),
            Reply::Error(error) => Self::of_error(error),
            Reply::Silence => Self::unanswered(
                Exchange::Timeout,
                "the server did not answer the policy exchange".into(),
            ),
        }
    }

    fn of_receipt(result: &str) -> Self {
        match member(result, "accepted") {
            Some("true") => Self::accepted(result),
            Some("false") => Self::refused(result),
            _ => Self::unanswered(
                Exchange::Error,
                "the server's policy receipt is malformed".into(),
            ),
        }
    }

    fn accepted(result: &str) -> Self {
        let missing = member(result, "unavailableFeatures").filter(|list| !is_empty_list(list));
        let degraded = missing.is_some() || member(result, "mode") == Some("\"degraded\"");
        Self {
            outcome: if degraded {
                Exchange::Degraded
            } else {
                Exchange::Granted
            },
            grants: Grants::Offered,
            note: missing.map_or_else(String::new, |list| {
                format!("unavailable features: {}", shortened(list))
            }),
            ends: false,
            receipt: result.into(),
        }
    }

    fn refused(result: &str) -> Self {
        let reason = member(result, "reason").map_or("no reason given", |reason| reason);
        let fallback = match member(result, "fallback") {
            Some("\"mcp-only\"") => "used without MCPL",
            Some("\"close\"") => "closed as it asked",
            _ => "used without MCPL; its receipt names no fallback",
        };
        Self {
            outcome: Exchange::Refused,
            grants: Grants::Nothing,
            note: format!("refused by the server ({}): {fallback}", shortened(reason)),
            ends: member(result, "fallback") == Some("\"close\""),
            receipt: result.into(),
        }
    }

    fn of_error(error: &str) -> Self {
        let code = member(error, "code").unwrap_or("no code");
        let note = format!("the server answered the policy exchange with error {code}");
        let mut verdict = Self::unanswered(Exchange::Error, note);
        if code != "-32601" {
            verdict.grants = Grants::Nothing;
        }
        verdict
    }

    fn unanswered(outcome: Exchange, note: String) -> Self {
        Self {
            outcome,
            grants: Grants::Unanswered,
            receipt: NO_RECEIPT.into(),
            note,
            ends: false,
        }
    }
}

/// What a host is told where the server itself gave no receipt.
const NO_RECEIPT: &str =
    r#"{"accepted":false,"fallback":"mcp-only","reason":"the server gave no policy receipt"}"#;

fn is_empty_list(text: &str) -> bool {
    text.strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|inner| inner.trim_ascii().is_empty())
}

/// The beginning of a peer's text, for a note.
fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}
