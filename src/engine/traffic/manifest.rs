//! The manifest as traffic: fetched when its server says that it changed, put in force, and told to hosts (P8; A6).

use std::collections::BTreeSet;

use super::Traffic;
use crate::engine::answers::Own;
use crate::engine::decision::Decision;
use crate::engine::input::Moment;
use crate::engine::manifest::{self, Domains, Fetched};
use crate::engine::outbox::Outbox;
use crate::engine::peer::Peer;
use crate::engine::policy::Offer;
use crate::ids::SessionId;
use crate::wire::digest::Canonical;
use crate::wire::jsonrpc::{self, Message, member, quoted};
use crate::wire::mcpl::{Domain, method};

impl Traffic {
    /// The server says that its manifest changed. That conveys no authority: only what is fetched counts.
    pub(super) fn refresh(&mut self, message: &Message, at: Moment, out: &mut Outbox) {
        self.tally.delivered += 1;
        if let (Some(id), Some(epoch)) = (message.id_text(), self.serving) {
            self.answer_server(epoch, jsonrpc::response(id, "{}"), out);
        }
        self.refresh.want(manifest::announced(message));
        self.fetch_manifest(at, out);
    }

    /// Fetches the manifest, if that is wanted and may be done now.
    pub(super) fn fetch_manifest(&mut self, at: Moment, out: &mut Outbox) {
        if self.serving.is_some() && self.refresh.start(at.now) {
            self.ask_server(Own::Manifest, method::MANIFEST, "{}", at, out);
        }
    }

    /// The manifest came: what it takes away ends at once, what it adds waits for a receipt (P3).
    pub(super) fn take_manifest(&mut self, message: &Message, at: Moment, out: &mut Outbox) {
        let result = message.result().map(str::trim_ascii);
        let Some(text) = result.filter(|text| text.starts_with('{')) else {
            return self.fail_manifest("it is no object, or an error", at, out);
        };
        let revision = Canonical::read(text).and_then(|manifest| manifest.revision());
        self.judge_revision(text, revision.as_ref(), out);
        let mut domains = self.refresh.finish(at.now);
        // One that still waits for its receipt is overtaken; its announcements are not.
        domains.extend(
            self.fetched
                .take()
                .into_iter()
                .flat_map(|last| last.domains),
        );
        self.fetched = Some(Fetched {
            text: text.into(),
            revision: revision.ok(),
            domains,
        });
        self.renegotiate(at, out);
        self.put_in_force(out);
    }

    /// A digest that differs is a defect of the server's, and no ground to leave its manifest aside.
    fn judge_revision(
        &self,
        text: &str,
        revision: Result<&String, &crate::wire::digest::Refusal>,
        out: &mut Outbox,
    ) {
        let told =
            member(text, "revision").and_then(|text| serde_json::from_str::<String>(text).ok());
        let report = match revision {
            Err(refusal) => format!("the manifest has no revision: {refusal}"),
            Ok(revision) if told.is_some_and(|told| told != *revision) => {
                "the manifest's revision is not the digest of it".into()
            }
            Ok(_) => return,
        };
        out.decide(self.serving, Decision::Reported(report));
    }

    /// The manifest could not be fetched: the last one stays in force.
    pub(super) fn fail_manifest(&mut self, why: &str, at: Moment, out: &mut Outbox) {
        self.refresh.finish(at.now);
        let text = format!("could not fetch the manifest: {why}");
        out.decide(self.serving, Decision::Reported(text));
    }

    /// Puts a fetched manifest in force, once the exchange that it caused, if any, has settled.
    pub(super) fn put_in_force(&mut self, out: &mut Outbox) {
        if self.policy.is_busy() {
            return;
        }
        let Some(fetched) = self.fetched.take() else {
            return;
        };
        let old = self.terms(self.manifest());
        let new = self.terms(Some(&fetched.text));
        let decision = self.receipt_of(&fetched, &old, &new);
        out.decide(self.serving, decision);
        let news = manifest::differing(self.manifest(), &fetched.text);
        if let Some(peer) = &mut self.peer {
            peer.set_manifest(&fetched.text);
        }
        self.news.extend(news);
        self.tell_manifest(out);
    }

    fn receipt_of(&self, fetched: &Fetched, old: &Offer, new: &Offer) -> Decision {
        let granted = self.policy.granted();
        let paths = |offer: &Offer| offer.granted.paths().collect::<BTreeSet<_>>();
        Decision::Manifest {
            revision: fetched.revision.clone(),
            domains: fetched.domains.iter().copied().collect(),
            capabilities: manifest::difference(&paths(old), &paths(new), |path| granted.has(path)),
            feature_sets: manifest::difference(&old.enabled(), &new.enabled(), |name| {
                self.policy.feature_set(name) == Some(true)
            }),
        }
    }

    /// The manifest in force.
    pub(super) fn manifest(&self) -> Option<&str> {
        self.peer.as_ref().and_then(Peer::manifest)
    }

    /// A server came back: hosts are told where its manifest differs, once its policy has settled (A6).
    pub(super) fn compare_manifest(&mut self, new: Option<&str>) {
        if let Some(new) = new {
            self.news.extend(manifest::differing(self.manifest(), new));
        }
    }

    /// Tells MCPL hosts that the manifest is not the one they know.
    pub(super) fn tell_manifest(&mut self, out: &mut Outbox) {
        let Some(manifest) = self.manifest().filter(|_| !self.news.is_empty()) else {
            return;
        };
        let revision = Canonical::read(manifest).and_then(|manifest| manifest.revision());
        let params = announcement(revision.ok().as_deref(), &self.news);
        let frame = jsonrpc::notification(method::MANIFEST_CHANGED, Some(&params));
        for (session, _) in self
            .hosts
            .initialized_ones()
            .filter(|(_, held)| held.is_mcpl())
        {
            out.answer(session, frame.clone());
        }
        self.news.clear();
    }

    /// Answers a host's request for the manifest while its server is away; `false` where the server can.
    pub(super) fn answer_manifest(
        &self,
        session: SessionId,
        message: &Message,
        out: &mut Outbox,
    ) -> bool {
        let known = self.manifest().filter(|text| text.starts_with('{'));
        let Some(known) = known.filter(|_| self.serving.is_none()) else {
            return false;
        };
        self.reply(session, message, known, out);
        true
    }
}

/// The params of a `mcpl/manifestChanged`.
fn announcement(revision: Option<&str>, domains: &Domains) -> String {
    let domains: Vec<String> = domains
        .iter()
        .map(|domain: &Domain| quoted(domain.label()))
        .collect();
    let domains = domains.join(",");
    let revision = revision.map_or_else(String::new, |text| {
        format!("\"revision\":{},", quoted(text))
    });
    format!("{{{revision}\"domains\":[{domains}]}}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Request;
    use super::super::rig::{CHAT, PLAIN, Rig, field};
    use super::*;

    const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"mcpl/manifestChanged","params":{"revision":"r","domains":["capabilities"]}}"#;
    const SECOND: Duration = Duration::from_secs(1);

    fn announce(rig: &mut Rig, domain: &str) {
        rig.server(&CHANGED.replace("capabilities", domain));
    }

    /// The ids of the fetches that were sent since the last look.
    fn fetches(rig: &mut Rig) -> Vec<u64> {
        let sent = rig.take_sent();
        let fetches = sent
            .iter()
            .filter(|line| field(line, "method") == "mcpl/manifest");
        fetches
            .map(|line| field(line, "id").as_u64().unwrap())
            .collect()
    }

    fn answer(rig: &mut Rig, id: u64, manifest: &str) {
        rig.server(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{manifest}}}"#
        ));
    }

    /// The server announces a change and answers the fetch.
    fn change(rig: &mut Rig, manifest: &str) {
        rig.take_sent();
        rig.server(CHANGED);
        let id = fetches(rig)[0];
        answer(rig, id, manifest);
    }

    fn receipts(rig: &Rig) -> Vec<&Decision> {
        let of_manifest = |decision: &&Decision| decision.kind() == "manifest";
        rig.decisions.iter().filter(of_manifest).collect()
    }

    fn granted(rig: &Rig, path: &str) -> bool {
        rig.traffic.policy.granted().has(path)
    }

    #[test]
    fn p8_a_reduction_takes_effect_before_the_server_is_told_and_is_in_the_receipt_once() {
        let mut rig = Rig::new();
        rig.settled();
        rig.mcpl_host(1);
        change(
            &mut rig,
            r#"{"version":"0.5","pushEvents":true,"inferenceRequest":true,"channels":{"register":true}}"#,
        );
        assert!(!granted(&rig, "channels.publish") && granted(&rig, "channels.register"));
        assert!(receipts(&rig).is_empty() && rig.take_announced(1).is_empty());
        rig.accept();
        let [
            Decision::Manifest {
                domains,
                capabilities,
                ..
            },
        ] = receipts(&rig)[..]
        else {
            panic!("one receipt is wanted");
        };
        assert_eq!(domains, &[Domain::Capabilities]);
        assert!(
            capabilities
                .removed
                .contains(&"channels.publish".to_owned())
        );
        assert!(capabilities.added.is_empty() && capabilities.pending.is_empty());
        let told = rig.take_announced(1);
        assert_eq!(told.len(), 1);
        assert_eq!(
            field(&told[0], "params.domains"),
            serde_json::json!(["capabilities"])
        );
        assert!(
            field(&told[0], "params.revision")
                .as_str()
                .unwrap()
                .starts_with("sha256:")
        );
    }

    #[test]
    fn p8_an_expansion_waits_for_its_receipt_and_does_not_take_effect_without_one() {
        let more = r#"{"version":"0.5","pushEvents":true,"inferenceRequest":true,"channels":true,"modelInfo":true}"#;
        for accepts in [true, false] {
            let mut rig = Rig::new();
            rig.settled();
            change(&mut rig, more);
            assert!(!granted(&rig, "modelInfo") && granted(&rig, "pushEvents"));
            if accepts {
                rig.accept();
            } else {
                rig.wait(15 * SECOND);
            }
            assert_eq!(granted(&rig, "modelInfo"), accepts);
            assert!(granted(&rig, "pushEvents"));
            let [Decision::Manifest { capabilities, .. }] = receipts(&rig)[..] else {
                panic!("one receipt is wanted");
            };
            let list = if accepts {
                &capabilities.added
            } else {
                &capabilities.pending
            };
            assert_eq!(list, &["modelInfo"]);
        }
    }

    #[test]
    fn p8_a_failed_fetch_changes_nothing_and_has_no_receipt() {
        for failure in [
            r#""error":{"code":-32601,"message":"m"}"#,
            r#""result":true"#,
            r#""result":[]"#,
            "",
        ] {
            let mut rig = Rig::new();
            rig.settled();
            rig.mcpl_host(1);
            rig.take_sent();
            let before = rig.traffic.policy.granted();
            rig.server(CHANGED);
            let id = fetches(&mut rig)[0];
            if failure.is_empty() {
                rig.wait(15 * SECOND);
            } else {
                rig.server(&format!(r#"{{"jsonrpc":"2.0","id":{id},{failure}}}"#));
            }
            assert_eq!(rig.traffic.policy.granted(), before);
            assert!(
                receipts(&rig).is_empty() && rig.take_announced(1).is_empty(),
                "{failure}"
            );
            assert!(
                rig.take_sent()
                    .iter()
                    .all(|line| !line.contains("featureSets"))
            );
            assert!(
                rig.decisions
                    .iter()
                    .any(|decision| decision.kind() == "reported")
            );
        }
    }

    #[test]
    fn p8_rapid_announcements_are_one_fetch_now_and_one_later_that_names_each_domain_once() {
        let mut rig = Rig::new();
        rig.settled();
        rig.take_sent();
        for domain in ["capabilities", "featureSets", "tagOntology", "featureSets"] {
            announce(&mut rig, domain);
        }
        let first = fetches(&mut rig);
        assert_eq!(first.len(), 1);
        answer(&mut rig, first[0], r#"{"version":"0.5"}"#);
        rig.accept();
        rig.wait(4 * SECOND);
        assert!(fetches(&mut rig).is_empty());
        rig.wait(SECOND);
        let second = fetches(&mut rig);
        answer(&mut rig, second[0], r#"{"version":"0.5"}"#);
        let domains: Vec<_> = receipts(&rig)
            .iter()
            .filter_map(|receipt| {
                let Decision::Manifest { domains, .. } = receipt else {
                    return None;
                };
                Some(domains.clone())
            })
            .collect();
        let rest = vec![Domain::FeatureSets, Domain::TagOntology];
        assert_eq!(domains, [vec![Domain::Capabilities], rest]);
        rig.wait(60 * SECOND);
        assert!(fetches(&mut rig).is_empty());
    }

    #[test]
    fn p8_a_manifest_that_comes_after_the_close_is_discarded() {
        let mut rig = Rig::new();
        rig.settled();
        rig.take_sent();
        rig.server(CHANGED);
        let id = fetches(&mut rig)[0];
        rig.lose();
        let late = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"version":"0.5"}}}}"#);
        rig.late(1, &late);
        rig.settled();
        rig.server_of(1, &late);
        assert!(granted(&rig, "pushEvents") && receipts(&rig).is_empty());
    }

    #[test]
    fn p8_a_fetch_that_waits_never_runs_on_another_transport_whose_floor_is_its_own() {
        let mut rig = Rig::new();
        rig.settled();
        change(
            &mut rig,
            r#"{"version":"0.5","pushEvents":true,"inferenceRequest":true,"channels":true}"#,
        );
        announce(&mut rig, "capabilities");
        assert!(fetches(&mut rig).is_empty());
        rig.lose();
        rig.settled();
        rig.wait(60 * SECOND);
        assert!(fetches(&mut rig).is_empty());
        rig.lose();
        rig.settled();
        rig.take_sent();
        rig.server(CHANGED);
        assert_eq!(fetches(&mut rig).len(), 1);
    }

    #[test]
    fn p8_a_refusal_that_asks_to_close_ends_the_connection_and_its_manifest_is_not_taken_over() {
        let mut rig = Rig::new();
        rig.settled();
        change(&mut rig, r#"{"version":"0.5"}"#);
        rig.receipt(r#"{"accepted":false,"fallback":"close"}"#);
        assert_eq!(rig.traffic.take_request(), Some(Request::End));
        rig.lose();
        assert!(receipts(&rig).is_empty());
        assert!(rig.traffic.manifest().unwrap().contains("pushEvents"));
    }

    #[test]
    fn p8_hosts_that_come_later_get_the_manifest_in_force_also_while_the_server_is_away() {
        let mut rig = Rig::new();
        rig.settled();
        let manifest = r#"{"version":"0.5", "pushEvents":true,"x":1.0}"#;
        change(&mut rig, manifest);
        rig.accept();
        rig.take_sent();
        rig.client(1, r#"{"experimental":{"mcpl":{}}}"#);
        let ask = r#"{"jsonrpc":"2.0","id":7,"method":"mcpl/manifest","params":{}}"#;
        rig.host(1, ask);
        assert_eq!(field(&rig.take_sent()[0], "method"), "mcpl/manifest");
        rig.lose();
        rig.take_answers(1);
        rig.host(1, ask);
        let wanted = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{manifest}}}"#);
        assert_eq!(rig.take_answers(1), [wanted]);
    }

    #[test]
    fn a6_a_host_is_told_after_a_reconnect_only_where_the_manifest_differs() {
        let mut rig = Rig::new();
        rig.mcpl_host(1);
        rig.client(2, "{}");
        let other = CHAT.replace(r#""channels":true"#, r#""channels":false"#);
        for (manifest, domains) in [(CHAT, 1), (CHAT, 0), (&other, 1), (PLAIN, 0), (&other, 1)] {
            rig.adopt(manifest);
            assert!(rig.take_announced(1).is_empty());
            if manifest != PLAIN {
                rig.accept();
            }
            assert_eq!(rig.take_announced(1).len(), domains, "{manifest}");
            assert!(rig.take_announced(2).is_empty());
            rig.take_sent();
            rig.lose();
        }
    }

    #[test]
    fn p8_a_revision_that_is_no_digest_is_reported_and_the_manifest_counts_all_the_same() {
        for odd in [
            r#"{"version":"0.5","revision":"r7"}"#,
            r#"{"version":"0.5","a b":true}"#,
        ] {
            let mut rig = Rig::new();
            rig.settled();
            change(&mut rig, odd);
            assert!(!granted(&rig, "pushEvents"), "{odd}");
            assert!(
                rig.decisions
                    .iter()
                    .any(|decision| decision.kind() == "reported")
            );
        }
    }

    #[test]
    fn p8_a_server_without_mcpl_announces_nothing() {
        let mut rig = Rig::new();
        rig.adopt(PLAIN);
        rig.server(CHANGED);
        assert!(rig.take_sent().is_empty());
    }
}
