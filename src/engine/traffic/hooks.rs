//! What a message carries that its receiver may not have: the parts of a host's message that the grant does not let the
//! server see, and the injections of an answer that it does not let in (MCPL §5.4, §10.1, §10.8).

use std::borrow::Cow;

use bytes::Bytes;

use super::Traffic;
use super::permits::Refusal;
use crate::engine::decision::DropReason;
use crate::engine::outbox::Outbox;
use crate::wire::capability::CapabilitySet;
use crate::wire::jsonrpc::{self, Message, code};
use crate::wire::mcpl::method;
use crate::wire::object::{self, Change};

/// A member of some params that a server sees under a capability of its own.
struct Part {
    of: &'static str,
    name: &'static str,
    needs: &'static str,
    /// It is `null` where it is withheld, and not merely absent (MCPL §10.1).
    is_null: bool,
}

const PARTS: [Part; 3] = [
    Part {
        of: method::BEFORE_INFERENCE,
        name: "userMessage",
        needs: "contextHooks.beforeInference.observe",
        is_null: true,
    },
    Part {
        of: method::INFERENCE_LIFECYCLE,
        name: "model",
        needs: "modelInfo",
        is_null: false,
    },
    Part {
        of: method::TOOLS_LIFECYCLE,
        name: "input",
        needs: "toolLifecycle.inputs",
        is_null: false,
    },
];

/// The list in a hook's answer.
const INJECTIONS: &str = "contextInjections";

impl Traffic {
    /// A host's message without the part that its server may not see.
    pub(super) fn withhold<'a>(&self, message: &'a Message) -> Result<Cow<'a, Message>, Refusal> {
        let granted = self.policy.granted();
        let part = PARTS.iter().find(|part| part.of == message.method());
        let withheld = part.filter(|part| !granted.has(part.needs));
        let (Some(part), Some(span)) = (withheld, message.param(&[])) else {
            return Ok(Cow::Borrowed(message));
        };
        let invalid = || {
            let text = "params that are an object are wanted".into();
            Refusal::new(code::INVALID_PARAMS, text, DropReason::Unreadable)
        };
        let mut changed = false;
        let params = object::edited(message.text(&span), |name, value| {
            let hides = name == part.name && value != "null";
            changed |= hides;
            match part.is_null {
                _ if !hides => Change::Keep,
                true => Change::Replace("null".into()),
                false => Change::Remove,
            }
        });
        let params = params.ok_or_else(invalid)?;
        if !changed {
            return Ok(Cow::Borrowed(message));
        }
        let id = message.id_text().unwrap_or_default();
        let frame = message.with(id, &[(span, &params)]);
        let message = Message::parse(frame).map_err(|_| invalid())?;
        Ok(Cow::Owned(message))
    }

    /// A server's answer for its host, without the injections whose position is not granted now.
    pub(super) fn granted_answer(&self, message: &Message, id: &str, out: &mut Outbox) -> Bytes {
        let Some(result) = message.result() else {
            return message.with_id(id);
        };
        let granted = self.policy.granted();
        let mut gone = 0;
        let sifted = object::edited(result, |name, value| {
            if name != INJECTIONS || value == "null" {
                return Change::Keep;
            }
            let (list, denied) = object::sifted(value, |injection| may_inject(granted, injection))
                .unwrap_or_else(|| ("[]".into(), 1));
            gone += denied;
            Change::Replace(list)
        });
        match sifted {
            Some(_) if gone == 0 => message.with_id(id),
            Some(result) => {
                self.say_dropped(DropReason::NotGranted, method::BEFORE_INFERENCE, gone, out);
                jsonrpc::response(id, &result)
            }
            // Whatever it is, it injects nothing that could be judged.
            None => jsonrpc::response(id, "{}"),
        }
    }
}

/// Whether an injection's position is granted. One that is told twice could be read either way.
fn may_inject(granted: CapabilitySet, injection: &str) -> bool {
    let position = object::only(injection, "position");
    position
        .and_then(|text| serde_json::from_str::<String>(text).ok())
        .is_some_and(|position| {
            granted.has(&format!("contextHooks.beforeInference.inject.{position}"))
        })
}

#[cfg(test)]
mod tests {
    use super::super::rig::{Rig, field, request};
    use super::*;

    const OBSERVE: &str = "contextHooks.beforeInference.observe";
    const HOOK: &str = "context/beforeInference";

    fn notice(name: &str, params: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","method":"{name}","params":{params}}}"#)
    }

    /// The host calls the hook, and the server answers with that list.
    fn answered(rig: &mut Rig, list: &str) -> String {
        rig.host(1, &request(9, HOOK, r#"{"inferenceId":"i"}"#));
        let id = field(&rig.take_sent()[0], "id");
        let result = format!(r#"{{"featureSet":"system","contextInjections":{list}, "more":1.0}}"#);
        answer(rig, &id.to_string(), &result)
    }

    fn answer(rig: &mut Rig, id: &str, result: &str) -> String {
        rig.server(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
        ));
        rig.take_answers(1).pop().unwrap()
    }

    fn at(position: &str) -> String {
        format!(r#"{{"namespace":"n","position":"{position}","content":"c"}}"#)
    }

    #[test]
    fn p1_what_the_user_wrote_is_null_unless_the_server_may_observe_and_the_hook_is_called() {
        let call = request(
            9,
            HOOK,
            r#"{"inferenceId":"i", "userMessage":"secret","user\u004dessage":"again","turnIndex":1.0}"#,
        );
        let mut rig = Rig::without(&[]);
        rig.host(1, &call);
        assert_eq!(rig.take_sent()[0], call.replace("\"id\":9", "\"id\":3"));
        let mut rig = Rig::without(&[OBSERVE]);
        rig.host(1, &call);
        let sent = rig.take_sent();
        let wanted = r#"{"inferenceId":"i","userMessage":null,"userMessage":null,"turnIndex":1.0}"#;
        assert_eq!(sent[0], request(3, HOOK, wanted));
    }

    #[test]
    fn p1_what_has_nothing_to_withhold_is_copied_and_what_cannot_be_read_is_refused() {
        let mut rig = Rig::without(&[OBSERVE]);
        let call = request(9, HOOK, r#"{ "userMessage":null , "turnIndex":1.0}"#);
        rig.host(1, &call);
        assert_eq!(rig.take_sent()[0], call.replace("\"id\":9", "\"id\":3"));
        rig.host(1, &request(9, HOOK, r#"["secret"]"#));
        assert!(rig.take_sent().is_empty());
        let refused = &rig.take_answers(1)[0];
        assert_eq!(field(refused, "error.code"), code::INVALID_PARAMS);
    }

    #[test]
    fn g11_arguments_of_tools_and_the_model_are_left_out_where_they_are_not_granted() {
        for (name, part, needs) in [
            ("tools/lifecycle", "input", "toolLifecycle.inputs"),
            ("inference/lifecycle", "model", "modelInfo"),
        ] {
            let line = notice(
                name,
                &format!(r#"{{"{part}":{{"a":1}},"phase":"started"}}"#),
            );
            let mut rig = Rig::without(&[]);
            rig.host(1, &line);
            assert_eq!(rig.take_sent(), std::slice::from_ref(&line));
            let mut rig = Rig::without(&[needs]);
            rig.host(1, &line);
            assert_eq!(rig.take_sent(), [notice(name, r#"{"phase":"started"}"#)]);
        }
    }

    #[test]
    fn g11_each_injection_is_judged_by_its_own_position_alone() {
        let all = ["system", "beforeUser", "afterUser"];
        for denied in all {
            let path = format!("contextHooks.beforeInference.inject.{denied}");
            let mut rig = Rig::without(&[&path]);
            let list: Vec<String> = all.iter().map(|position| at(position)).collect();
            let answer = answered(&mut rig, &format!("[{}]", list.join(",")));
            let kept: Vec<String> = list
                .into_iter()
                .filter(|one| !one.contains(denied))
                .collect();
            let wanted = format!(
                r#"{{"jsonrpc":"2.0","id":9,"result":{{"featureSet":"system","contextInjections":[{}],"more":1.0}}}}"#,
                kept.join(",")
            );
            assert_eq!(answer, wanted);
            assert_eq!(rig.dropped("not_granted"), 1);
        }
    }

    #[test]
    fn g11_an_injection_without_one_plain_position_is_left_out() {
        let mut rig = Rig::without(&["contextHooks.beforeInference.inject.system"]);
        for one in [
            r#"{"position":"afterUser","position":"system","content":"c"}"#,
            r#"{"position":"system","position":"afterUser","content":"c"}"#,
            r#"{"position":"after","content":"c"}"#,
            r#"{"position":["afterUser"],"content":"c"}"#,
            r#"{"position":"observe","content":"c"}"#,
            r#"{"content":"c"}"#,
            r#""afterUser""#,
            "null",
        ] {
            let answer = answered(&mut rig, &format!("[{one}]"));
            let list = field(&answer, "result.contextInjections");
            assert_eq!(list, serde_json::json!([]), "{one}");
        }
        for list in [r#"{"0":{"position":"system"}}"#, "\"system\""] {
            let answer = answered(&mut rig, list);
            let list = field(&answer, "result.contextInjections");
            assert_eq!(list, serde_json::json!([]));
        }
        assert_eq!(rig.dropped("not_granted"), 10);
    }

    #[test]
    fn g11_what_counts_is_the_grant_when_the_answer_comes() {
        let mut rig = Rig::without(&[]);
        rig.host(1, &request(9, HOOK, "{}"));
        let id = field(&rig.take_sent()[0], "id").to_string();
        rig.mask(&["contextHooks"]);
        let result = format!(r#"{{"contextInjections":[{}]}}"#, at("afterUser"));
        let told = answer(&mut rig, &id, &result);
        assert_eq!(
            field(&told, "result.contextInjections"),
            serde_json::json!([])
        );
    }

    #[test]
    fn a2_an_answer_whose_injections_are_all_granted_is_copied_and_an_error_passes() {
        let mut rig = Rig::without(&[]);
        let told = answered(&mut rig, &format!("[ {} ]", at("system")));
        assert!(told.contains(&format!("[ {} ], \"more\":1.0", at("system"))));
        rig.host(1, &request(9, HOOK, "{}"));
        let id = field(&rig.take_sent()[0], "id");
        rig.server(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":1,"message":"m"}}}}"#
        ));
        assert_eq!(field(&rig.take_answers(1)[0], "error.code"), 1);
        rig.host(1, &request(9, HOOK, "{}"));
        let id = field(&rig.take_sent()[0], "id").to_string();
        let told = answer(&mut rig, &id, &format!("[{}]", at("system")));
        assert_eq!(field(&told, "result"), serde_json::json!({}));
    }
}
