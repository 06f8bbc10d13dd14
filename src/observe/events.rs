//! The event stream: the last decisions except traffic, in a ring that is bounded in count and bytes, and subscriptions
//! that follow it from an id. A reader that falls out of the ring is told so; it never slows a writer.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use prometheus::IntCounter;
use serde_json::json;
use tokio::sync::watch;

use crate::ids::ServerId;

/// The most events that the ring holds.
pub const EVENTS_MAX: usize = 4_096;
/// The most bytes of JSON that the ring holds.
pub const EVENT_BYTES_MAX: usize = 4 << 20;

/// One decision, as it is streamed.
#[derive(Debug)]
pub struct Event {
    /// `<boot>-<seq>`: the boot is this process's own, the number counts from 1.
    pub id: String,
    /// A decision's, or `left-out`.
    pub kind: &'static str,
    /// A JSON object: `id`, `at` (RFC 3339, ms), `server`, `epoch`, `attempt`, `kind`, `text`, `fields`.
    pub json: String,
}

/// What a subscription says next.
#[derive(Clone, Debug)]
pub enum Told {
    /// The next event.
    Event(Arc<Event>),
    /// Events before the next one are not to be had: begin with a snapshot of the open episodes.
    Gap,
}

/// The stream. Cheap to clone.
#[derive(Clone)]
pub struct Events {
    shared: Arc<Shared>,
}

struct Shared {
    boot: String,
    ring: Mutex<Ring>,
    /// The number of the newest event.
    newest: watch::Sender<u64>,
    lagged: IntCounter,
}

#[derive(Default)]
struct Ring {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// The number of the newest event; 0 before the first.
    newest: u64,
}

/// A place in the stream.
#[derive(Debug)]
pub struct Subscription {
    events: Events,
    /// The number of the last event told.
    at: u64,
    /// A gap is to be told first.
    gap: bool,
    newest: watch::Receiver<u64>,
}

impl Events {
    /// An empty stream. `lagged` counts subscriptions that fell out of the ring.
    pub(super) fn new(lagged: IntCounter) -> Self {
        let boot = format!("{:08x}", fastrand::u32(..));
        let shared = Shared {
            boot,
            ring: Mutex::default(),
            newest: watch::Sender::new(0),
            lagged,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Adds what is told of a server.
    pub(super) fn push(&self, server: &ServerId, told: &super::Told<'_>) {
        let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let mut body = json!({
            "at": at, "server": server.as_str(), "epoch": told.epoch.map(|epoch| epoch.0),
            "attempt": told.attempt, "kind": told.kind, "text": told.text, "fields": told.fields,
        });
        let mut ring = self.ring();
        let number = ring.newest + 1;
        let id = format!("{}-{number}", self.shared.boot);
        if let Some(body) = body.as_object_mut() {
            body.insert("id".into(), id.as_str().into());
        }
        ring.push(Event {
            id,
            kind: told.kind,
            json: body.to_string(),
        });
        drop(ring);
        self.shared.newest.send_replace(number);
    }

    /// What the ring holds, oldest first.
    #[must_use]
    pub fn recent(&self) -> Vec<Arc<Event>> {
        self.ring().events.iter().cloned().collect()
    }

    /// Follows the stream from behind the event of this id on. Without one, or with one that is too old or of another
    /// boot, a gap is told first, and then what comes after now.
    #[must_use]
    pub fn subscribe(&self, after: Option<&str>) -> Subscription {
        let newest = self.shared.newest.subscribe();
        let ring = self.ring();
        let at = after.and_then(|id| self.number(id));
        let at = at.filter(|at| (ring.before_oldest()..=ring.newest).contains(at));
        Subscription {
            events: self.clone(),
            at: at.unwrap_or(ring.newest),
            gap: at.is_none(),
            newest,
        }
    }

    fn number(&self, id: &str) -> Option<u64> {
        let (boot, number) = id.split_once('-')?;
        (boot == self.shared.boot).then(|| number.parse().ok())?
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.shared
            .ring
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Ring {
    /// The number of the last event that is no longer in the ring.
    fn before_oldest(&self) -> u64 {
        self.newest - self.events.len() as u64
    }

    fn push(&mut self, event: Event) {
        self.bytes += event.json.len();
        self.events.push_back(Arc::new(event));
        self.newest += 1;
        while self.events.len() > EVENTS_MAX || self.bytes > EVENT_BYTES_MAX {
            let Some(oldest) = self.events.pop_front() else {
                break;
            };
            self.bytes -= oldest.json.len();
        }
    }

    /// The event after this number: `Err` where it is gone, `Ok(None)` where it is still to come.
    fn after(&self, number: u64) -> Result<Option<Arc<Event>>, ()> {
        let index = number.checked_sub(self.before_oldest()).ok_or(())?;
        let index = usize::try_from(index).map_err(|_| ())?;
        Ok(self.events.get(index).cloned())
    }
}

impl Subscription {
    /// The id of the last event told, or of the newest one that a gap skipped: where to resume.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}-{}", self.events.shared.boot, self.at)
    }

    /// The next thing to tell; waits for it. Safe to cancel.
    pub async fn next(&mut self) -> Told {
        loop {
            if std::mem::take(&mut self.gap) {
                return Told::Gap;
            }
            self.newest.mark_unchanged();
            let after = self.events.ring().after(self.at);
            match after {
                Ok(Some(event)) => {
                    self.at += 1;
                    return Told::Event(event);
                }
                Ok(None) => self.wait().await,
                Err(()) => self.fall_behind(),
            }
        }
    }

    async fn wait(&mut self) {
        // The sender lives as long as `events`, which this holds.
        let _ = self.newest.changed().await;
    }

    fn fall_behind(&mut self) {
        self.events.shared.lagged.inc();
        self.at = self.events.ring().newest;
        self.gap = true;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::ids::Epoch;

    fn stream() -> (Events, IntCounter) {
        let lagged = IntCounter::new("lagged", "of a test").unwrap();
        (Events::new(lagged.clone()), lagged)
    }

    fn push(events: &Events, text: &str) {
        let server = ServerId::new("chat").unwrap();
        let told = crate::observe::Told {
            epoch: Some(Epoch(3)),
            trace: None,
            attempt: 2,
            kind: "reported",
            text,
            fields: &json!({ "a": 1 }),
        };
        events.push(&server, &told);
    }

    async fn text(subscription: &mut Subscription) -> String {
        match subscription.next().await {
            Told::Event(event) => {
                let json: Value = serde_json::from_str(&event.json).unwrap();
                json["text"].as_str().unwrap().into()
            }
            Told::Gap => "gap".into(),
        }
    }

    #[tokio::test]
    async fn an_event_has_an_id_a_time_its_place_and_its_fields() {
        let (events, _) = stream();
        push(&events, "one");
        let event = &events.recent()[0];
        let json: Value = serde_json::from_str(&event.json).unwrap();
        assert_eq!(json["id"], event.id.as_str());
        assert!(event.id.ends_with("-1"), "{}", event.id);
        assert_eq!(
            (&json["server"], &json["epoch"]),
            (&json!("chat"), &json!(3))
        );
        assert_eq!(
            (&json["kind"], &json["text"]),
            (&json!("reported"), &json!("one"))
        );
        assert_eq!(
            (&json["attempt"], &json["fields"]),
            (&json!(2), &json!({ "a": 1 }))
        );
        let at = json["at"].as_str().unwrap();
        assert_eq!((at.len(), &at[19..20], &at[23..]), (24, ".", "Z"));
    }

    #[tokio::test]
    async fn a_subscription_resumes_behind_the_id_it_names() {
        let (events, _) = stream();
        for text in ["one", "two", "three"] {
            push(&events, text);
        }
        let first = events.recent()[0].id.clone();
        let mut resumed = events.subscribe(Some(&first));
        assert_eq!(resumed.id(), first);
        assert_eq!(text(&mut resumed).await, "two");
        assert_eq!(text(&mut resumed).await, "three");
        push(&events, "four");
        assert_eq!(text(&mut resumed).await, "four");
    }

    #[tokio::test]
    async fn a_subscription_without_a_usable_id_begins_with_a_gap() {
        let (events, _) = stream();
        push(&events, "one");
        for id in [None, Some("ffffffffff-1"), Some("nonsense"), Some("")] {
            let mut subscription = events.subscribe(id);
            assert_eq!(text(&mut subscription).await, "gap");
            push(&events, "after");
            assert_eq!(text(&mut subscription).await, "after");
        }
        let future = events.recent()[0].id.replace("-1", "-999");
        assert_eq!(text(&mut events.subscribe(Some(&future))).await, "gap");
    }

    #[tokio::test]
    async fn a_reader_that_falls_out_of_the_ring_is_told_and_counted() {
        let (events, lagged) = stream();
        push(&events, "first");
        let first = events.recent()[0].id.clone();
        let mut slow = events.subscribe(Some(&first));
        for _ in 0..=EVENTS_MAX {
            push(&events, "flood");
        }
        assert_eq!(events.recent().len(), EVENTS_MAX);
        assert_eq!(text(&mut slow).await, "gap");
        assert_eq!(lagged.get(), 1);
        assert_eq!(text(&mut events.subscribe(Some(&first))).await, "gap");
    }

    #[tokio::test]
    async fn the_ring_is_bounded_in_bytes_too() {
        let (events, _) = stream();
        let long = "x".repeat(EVENT_BYTES_MAX / 8);
        for _ in 0..20 {
            push(&events, &long);
        }
        assert!(events.recent().len() <= 8);
        assert!(events.ring().bytes <= EVENT_BYTES_MAX);
    }

    #[tokio::test]
    async fn a_waiting_reader_is_woken_by_the_next_event() {
        let (events, _) = stream();
        let mut subscription = events.subscribe(None);
        assert_eq!(text(&mut subscription).await, "gap");
        let reader = tokio::spawn(async move { text(&mut subscription).await });
        tokio::task::yield_now().await;
        push(&events, "woken");
        assert_eq!(reader.await.unwrap(), "woken");
    }
}
