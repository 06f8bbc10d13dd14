//! Where messages go, what is kept of them, and what a connection that comes again is given.

use proptest::prelude::*;

use super::*;

fn request(id: &str, meta: &str) -> Message {
    let text = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"_meta":{{{meta}}}}}}}"#
    );
    Message::parse(text.into()).unwrap()
}

fn answer(id: &str, text: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{text}"}}"#).into()
}

fn notice(text: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{"n":"{text}"}}}}"#).into()
}

fn question(id: u64) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list"}}"#).into()
}

fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn first(reader: &Reader) -> Option<First> {
    match reader.poll_first(&cx()) {
        Poll::Ready(first) => Some(first),
        Poll::Pending => None,
    }
}

/// What is there to be read, and whether the stream ended.
fn read(reader: &Reader) -> (Vec<Step>, bool) {
    let mut steps = Vec::new();
    loop {
        match reader.poll_step(&cx()) {
            Poll::Ready(Some(step)) => steps.push(step),
            Poll::Ready(None) => return (steps, true),
            Poll::Pending => return (steps, false),
        }
    }
}

fn event(number: u64, frame: &Bytes) -> Step {
    Step::Event(number, frame.clone())
}

fn place(streams: &Arc<Streams>, frame: &Bytes) {
    streams.place(None, frame.clone()).unwrap();
}

#[test]
fn an_answer_that_comes_first_is_the_whole_of_its_post() {
    let streams = Streams::new();
    let (post, _) = streams.expect(vec![request("1", "")]);
    assert_eq!(first(&post), None);
    place(&streams, &notice("for the GET"));
    assert_eq!(first(&post), None);
    place(&streams, &answer("1", "a"));
    assert_eq!(first(&post), Some(First::Answers(vec![answer("1", "a")])));
    drop(post);
    assert!(streams.is_idle());
}

#[test]
fn progress_before_the_answer_makes_a_stream_that_ends_with_it() {
    let streams = Streams::new();
    let (post, _) = streams.expect(vec![request("1", r#""progressToken":"p""#)]);
    let (other, _) = streams.expect(vec![request("2", r#""progressToken":"q""#)]);
    let progress = Bytes::from_static(
        br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}"#,
    );
    place(&streams, &progress);
    assert_eq!((first(&post), first(&other)), (Some(First::Stream), None));
    assert_eq!(read(&post), (vec![event(1, &progress)], false));
    let answer = answer("1", "a");
    place(&streams, &answer);
    assert_eq!(read(&post), (vec![event(2, &answer)], true));
}

#[test]
fn what_is_known_to_be_for_a_call_goes_there_whoever_listens_and_however_many_there_are() {
    let streams = Streams::new();
    let listener = streams.listen().unwrap();
    let (one, _) = streams.expect(vec![request("1", "")]);
    let (two, _) = streams.expect(vec![request("2", "")]);
    let known = |regards, frame: Bytes| streams.place(Some(regards), frame).unwrap();
    known(Regards::Meanwhile(RequestId::from(2)), question(7));
    assert_eq!(read(&two), (vec![event(1, &question(7))], false));
    // It is not read to see whose it is.
    known(Regards::Answer(RequestId::from(1)), "x".into());
    assert_eq!(first(&one), Some(First::Answers(vec!["x".into()])));
    known(Regards::Meanwhile(RequestId::from(9)), notice("a"));
    assert_eq!(read(&listener), (vec![event(1, &notice("a"))], false));
}

#[test]
fn a_request_of_the_server_goes_with_the_only_call_else_to_who_listens_else_with_the_oldest_call() {
    let streams = Streams::new();
    let (one, _) = streams.expect(vec![request("1", "")]);
    place(&streams, &question(7));
    assert_eq!(read(&one), (vec![event(1, &question(7))], false));
    let (two, _) = streams.expect(vec![request("2", "")]);
    place(&streams, &question(8));
    assert_eq!(read(&one).0, [event(2, &question(8))]);
    let listener = streams.listen().unwrap();
    place(&streams, &question(9));
    assert_eq!(read(&listener), (vec![event(1, &question(9))], false));
    assert_eq!(first(&two), None);
}

#[test]
fn what_comes_before_the_first_get_waits_for_it_and_each_message_goes_to_one_stream_alone() {
    let streams = Streams::new();
    place(&streams, &notice("early"));
    let old = streams.listen().unwrap();
    assert_eq!(read(&old), (vec![event(1, &notice("early"))], false));
    let new = streams.listen().unwrap();
    place(&streams, &notice("late"));
    assert_eq!(read(&old), (vec![], false));
    assert_eq!(read(&new), (vec![event(1, &notice("late"))], false));
    drop(new);
    place(&streams, &notice("then"));
    assert_eq!(read(&old), (vec![event(2, &notice("then"))], false));
}

#[test]
fn a_stream_goes_on_after_the_event_that_its_client_saw_and_its_old_connection_ends() {
    let streams = Streams::new();
    let old = streams.listen().unwrap();
    for n in 0..4 {
        place(&streams, &notice(&n.to_string()));
    }
    read(&old);
    let new = streams.resume(old.stream(), 2).unwrap();
    assert_eq!(read(&old), (vec![], true));
    drop(old);
    place(&streams, &notice("4"));
    let wanted: Vec<Step> = (2..5)
        .map(|n| event(n + 1, &notice(&n.to_string())))
        .collect();
    assert_eq!(read(&new), (wanted, false));
    assert!(streams.resume(new.stream(), 6).is_err());
    assert!(streams.resume(99, 0).is_err());
}

#[test]
fn the_answer_of_a_stream_whose_client_left_is_kept_for_it_and_that_of_a_plain_post_is_not() {
    let streams = Streams::new();
    let (post, _) = streams.expect(vec![request("1", "")]);
    place(&streams, &question(7));
    read(&post);
    let stream = post.stream();
    drop(post);
    place(&streams, &answer("1", "a"));
    let again = streams.resume(stream, 1).unwrap();
    assert_eq!(read(&again), (vec![event(2, &answer("1", "a"))], true));
    drop(again);

    let (post, _) = streams.expect(vec![request("1", "")]);
    let stream = post.stream();
    drop(post);
    assert!(streams.resume(stream, 0).is_err());
    assert!(!streams.is_idle());
    place(&streams, &answer("1", "a"));
    assert!(streams.is_idle());
    assert_eq!(streams.take_missed(), 1);
}

#[test]
fn a2_an_id_that_is_in_flight_already_goes_under_another_and_comes_back_as_it_was() {
    let streams = Streams::new();
    let (one, sent) = streams.expect(vec![request("1", "")]);
    assert_eq!(sent[0].id_text(), Some("1"));
    let (two, sent) = streams.expect(vec![request("1", "")]);
    let other = sent[0].id_text().unwrap().to_owned();
    assert_ne!(other, "1");
    place(&streams, &answer(&other, "second"));
    place(&streams, &answer("1", "first"));
    let got = |reader, text| first(reader) == Some(First::Answers(vec![answer("1", text)]));
    assert!(got(&two, "second") && got(&one, "first"));
}

#[test]
fn a_cancelled_call_ends_without_an_answer_and_a_late_one_goes_nowhere() {
    let streams = Streams::new();
    let (post, _) = streams.expect(vec![request("1", "")]);
    streams.cancel(&RequestId::from(1));
    assert_eq!(first(&post), Some(First::Answers(vec![])));
    place(&streams, &answer("1", "late"));
    assert_eq!(streams.take_missed(), 0);
}

#[test]
fn the_end_answers_each_call_and_ends_each_stream() {
    let streams = Streams::new();
    let (post, _) = streams.expect(vec![request("1", ""), request("\"b\"", "")]);
    let listener = streams.listen().unwrap();
    streams.end("it ended");
    let Some(First::Answers(answers)) = first(&post) else {
        panic!("no answers")
    };
    for (answer, id) in answers.iter().zip(["\"b\"", "1"]) {
        let message = Message::parse(answer.clone()).unwrap();
        assert_eq!(message.id_text(), Some(id));
        assert!(message.error().unwrap().contains("-32051"));
    }
    assert_eq!(read(&listener), (vec![], true));
}

#[test]
fn what_nobody_reads_is_bounded_and_the_next_listener_is_told_of_the_gap() {
    let streams = Streams::new();
    for n in 0..EVENTS_MAX + 5 {
        place(&streams, &notice(&n.to_string()));
    }
    assert_eq!(streams.take_missed(), 5);
    assert!(!streams.is_unheard());
    let listener = streams.listen().unwrap();
    let (steps, _) = read(&listener);
    assert_eq!(steps.len(), EVENTS_MAX + 1);
    assert_eq!(steps[..2], [Step::Gap(5), event(1, &notice("5"))]);
}

#[test]
fn a_request_of_the_server_that_nobody_will_hear_is_known_as_such() {
    let streams = Streams::new();
    place(&streams, &question(1));
    for n in 0..EVENTS_MAX {
        place(&streams, &notice(&n.to_string()));
    }
    assert!(streams.is_unheard());
}

#[test]
fn what_a_server_asks_for_a_call_whose_client_left_is_heard_on_its_get() {
    let streams = Streams::new();
    let (post, _) = streams.expect(vec![request("1", "")]);
    let listener = streams.listen().unwrap();
    drop(post);
    let regards = Regards::Meanwhile(RequestId::from(1));
    streams.place(Some(regards), question(7)).unwrap();
    assert!(!streams.is_unheard());
    assert_eq!(read(&listener).0, [event(1, &question(7))]);
}

#[test]
fn g16_what_a_connection_has_yet_to_take_is_not_forgotten_and_more_has_to_wait() {
    let streams = Streams::new();
    let listener = streams.listen().unwrap();
    let big = notice(&"x".repeat(BYTES_MAX));
    place(&streams, &big);
    let Crowded(_, back) = streams.place(None, notice("y")).unwrap_err();
    assert_eq!(back, notice("y"));
    assert_eq!(read(&listener).0, [event(1, &big)]);
    place(&streams, &back);
    assert_eq!(read(&listener).0, [event(2, &back)]);
    // What was taken made room, and is not to be had again.
    let again = streams.resume(listener.stream(), 0).unwrap();
    assert_eq!(read(&again).0, [Step::Gap(1), event(2, &back)]);
}

#[test]
fn a_session_has_a_bounded_number_of_listeners() {
    let streams = Streams::new();
    let listeners: Vec<Reader> = (0..LISTENERS_MAX)
        .map(|_| streams.listen().unwrap())
        .collect();
    assert!(matches!(streams.listen(), Err(TooMany)));
    drop(listeners);
    for _ in 0..100 {
        drop(streams.listen().unwrap());
    }
    assert!(streams.state().streams.len() <= 2 * LISTENERS_MAX + 1);
}

/// What a client did with its connections, and the session with its messages.
#[derive(Clone, Copy, Debug)]
enum Act {
    Say(usize),
    Listen,
    Read,
    Leave,
    Resume,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1..200_000_usize).prop_map(Act::Say),
        1 => Just(Act::Listen),
        3 => Just(Act::Read),
        1 => Just(Act::Leave),
        1 => Just(Act::Resume),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A client that always goes on after the last event it saw gets each message once and in order, but for those of
    /// which it is told that they are missing; and the bounds hold.
    #[test]
    fn a_client_that_resumes_misses_nothing_untold(
        acts in proptest::collection::vec(act(), 1..120),
    ) {
        let streams = Streams::new();
        let (mut said, mut seen, mut missing) = (0_u64, Vec::new(), 0);
        let mut reader: Option<Reader> = None;
        let mut last: Option<(u64, u64)> = None;
        for act in acts.into_iter().chain([Act::Resume, Act::Listen, Act::Read]) {
            match act {
                Act::Say(bytes) => {
                    let text = format!("{said} {}", "x".repeat(bytes));
                    if streams.place(None, notice(&text)).is_ok() {
                        said += 1;
                    }
                }
                Act::Listen if reader.is_none() => reader = streams.listen().ok(),
                Act::Resume if reader.is_none() => {
                    reader = last.and_then(|(stream, number)| streams.resume(stream, number).ok());
                }
                Act::Leave => reader = None,
                Act::Read => {
                    let Some(reader) = &reader else { continue };
                    for step in read(reader).0 {
                        match step {
                            Step::Gap(events) => missing += events,
                            Step::Event(number, frame) => {
                                last = Some((reader.stream(), number));
                                let message = Message::parse(frame).unwrap();
                                let span = message.param(&["n"]).unwrap();
                                let text = message.text(&span).trim_matches('"');
                                seen.push(text.split(' ').next().unwrap().parse::<u64>().unwrap());
                            }
                        }
                    }
                }
                Act::Listen | Act::Resume => {}
            }
            let state = streams.state();
            let bytes: usize = state.bytes;
            prop_assert!(state.events <= EVENTS_MAX);
            prop_assert!(bytes <= BYTES_MAX || state.events == 1);
        }
        prop_assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
        prop_assert_eq!(seen.len() as u64 + missing, said);
    }
}
