//! Posts of the gateway's own: the text of an edge into a channel of a server, as a request of its own and under the
//! grant of the moment. What waits, and for how long, is for its asker to say.

use super::Traffic;
use crate::engine::answers::Own;
use crate::engine::input::{Moment, Post};
use crate::engine::outbox::Outbox;
use crate::engine::output::{Output, Posted};
use crate::wire::jsonrpc::{Message, member, quoted};
use crate::wire::mcpl::method;

/// What a post needs.
const PUBLISH: &str = "channels.publish";
/// The conversation that all posts belong to.
const CONVERSATION: &str = "tidegate-status";

impl Traffic {
    /// Sends a post, or tells at once why nothing is sent.
    pub(in crate::engine) fn post(&mut self, post: &Post, at: Moment, out: &mut Outbox) {
        let why = if !self.is_settled() {
            "its server does not serve".to_owned()
        } else if !self.policy.granted().has(PUBLISH) {
            format!("{PUBLISH} is not granted")
        } else {
            let (channel, text) = (quoted(&post.channel), quoted(&post.text));
            let params = format!(
                r#"{{"conversationId":"{CONVERSATION}","channelId":{channel},"content":[{{"type":"text","text":{text}}}]}}"#
            );
            let own = Own::Post(post.ticket);
            self.ask_server(own, method::CHANNELS_PUBLISH, &params, at, out);
            return;
        };
        tell(post.ticket, Posted::NotSent(why), out);
    }

    /// A post is answered.
    pub(super) fn posted(ticket: u64, message: &Message, out: &mut Outbox) {
        let posted = match (message.result(), message.error()) {
            (Some(result), _) if member(result, "delivered") == Some("false") => {
                Posted::Refused("it was not delivered".into())
            }
            (Some(_), _) => Posted::Delivered,
            (None, error) => Posted::Refused(reason(error.unwrap_or_default())),
        };
        tell(ticket, posted, out);
    }

    /// A post that was sent has no answer that says what became of it.
    pub(super) fn post_unknown(ticket: u64, why: &str, out: &mut Outbox) {
        tell(ticket, Posted::Unknown(why.into()), out);
    }

    /// A post did not go out.
    pub(super) fn post_unsent(ticket: u64, out: &mut Outbox) {
        let why = "its server does not read what it is sent";
        tell(ticket, Posted::NotSent(why.into()), out);
    }
}

fn tell(ticket: u64, mut posted: Posted, out: &mut Outbox) {
    if let Posted::NotSent(why) | Posted::Refused(why) | Posted::Unknown(why) = &mut posted {
        out.secrets().mask(why);
    }
    out.push(Output::Posted { ticket, posted });
}

/// What a peer's error says, where it says something.
fn reason(error: &str) -> String {
    let message = member(error, "message").and_then(|text| serde_json::from_str(text).ok());
    message.unwrap_or_else(|| format!("error {}", member(error, "code").unwrap_or("")))
}

#[cfg(test)]
mod tests {
    use super::super::rig::{PLAIN, Rig, field};
    use super::*;
    use crate::engine::settings::{Mask, Settings};

    fn post(rig: &mut Rig, ticket: u64) {
        let post = Post {
            ticket,
            channel: "ops".into(),
            text: "MCP server \"down\"".into(),
        };
        rig.run(|traffic, at, out| traffic.post(&post, at, out));
    }

    fn answer(rig: &mut Rig, sent: &str, member: &str) {
        let id = field(sent, "id");
        rig.server(&format!(r#"{{"jsonrpc":"2.0","id":{id},{member}}}"#));
    }

    #[test]
    fn p1_a_post_is_the_gateways_own_request_under_the_grant_of_the_moment() {
        let mut rig = Rig::new();
        rig.settled();
        rig.take_sent();
        post(&mut rig, 7);
        let sent = rig.take_sent().remove(0);
        assert_eq!(field(&sent, "method"), "channels/publish");
        assert_eq!(field(&sent, "params.channelId"), "ops");
        assert_eq!(field(&sent, "params.content.0.text"), "MCP server \"down\"");
        answer(&mut rig, &sent, r#""result":{"delivered":true}"#);
        assert_eq!(rig.take_posted(), [(7, Posted::Delivered)]);
    }

    #[test]
    fn p1_without_the_capability_or_a_connection_nothing_is_sent_and_that_is_told() {
        let denied = Settings {
            mask: Mask {
                disabled_capabilities: vec!["channels.publish".into()],
                ..Mask::default()
            },
            ..Settings::default()
        };
        let mut rig = Rig::with(denied);
        rig.settled();
        let mut away = Rig::new();
        away.settled();
        away.lose();
        let mut plain = Rig::new();
        plain.adopt(PLAIN);
        for (rig, why) in [
            (&mut rig, "channels.publish is not granted"),
            (&mut away, "its server does not serve"),
            (&mut plain, "channels.publish is not granted"),
        ] {
            rig.take_sent();
            post(rig, 1);
            assert!(rig.take_sent().is_empty());
            assert_eq!(rig.take_posted(), [(1, Posted::NotSent(why.into()))]);
        }
    }

    #[test]
    fn a_post_that_is_refused_lost_or_not_answered_says_which() {
        let mut rig = Rig::new();
        rig.settled();
        for (said, why) in [
            (
                r#""error":{"code":-32000,"message":"no such channel"}"#,
                "no such channel",
            ),
            (r#""error":{"code":-7}"#, "error -7"),
            (r#""result":{"delivered":false}"#, "it was not delivered"),
        ] {
            rig.take_sent();
            post(&mut rig, 2);
            let sent = rig.take_sent().remove(0);
            answer(&mut rig, &sent, said);
            assert_eq!(rig.take_posted(), [(2, Posted::Refused(why.into()))]);
        }
        post(&mut rig, 3);
        rig.wait(Settings::default().request_timeout);
        post(&mut rig, 4);
        rig.lose();
        let unknown = |ticket, why: &str| (ticket, Posted::Unknown(why.into()));
        let expected = [
            unknown(3, "no answer in time"),
            unknown(4, "the connection was lost"),
        ];
        assert_eq!(rig.take_posted(), expected);
    }
}
