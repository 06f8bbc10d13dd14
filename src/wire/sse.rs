//! Server-sent events, as a server of Streamable HTTP writes them: from pieces of a body to events, bounded (G16). It
//! reads no message in them.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::framing::MESSAGE_MAX;

/// The longest line that is put together, in bytes: a message and the name of its field.
const LINE_MAX: usize = MESSAGE_MAX + 16;
/// An id that is longer than this is none: it would have to be sent back in a header. In bytes.
const ID_MAX: usize = 4 << 10;

/// What a stream says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An event with data.
    Data {
        /// Its type, where that is not `message`.
        kind: Option<Box<str>>,
        /// Its data; several lines are joined by line ends.
        data: Bytes,
    },
    /// Data past the bound, of which this is the beginning. The rest of the event is skipped.
    TooLong(Bytes),
    /// How long to wait before the stream is opened again.
    Retry(Duration),
}

/// Reads one stream.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The line that has begun.
    line: BytesMut,
    after_cr: bool,
    begun: bool,
    /// Up to the next blank line, or the next line end, nothing counts.
    skipped: Option<Skipped>,
    data: Option<Bytes>,
    kind: Option<Box<str>>,
    id: Option<Box<str>>,
    last_id: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skipped {
    Line,
    Event,
}

impl Decoder {
    /// The id of the last event that ended, with which a broken stream can be taken up again.
    #[must_use]
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// Reads a piece of the body and adds what it completes to `events`.
    pub fn read(&mut self, piece: &Bytes, events: &mut Vec<Event>) {
        let mut start = 0;
        for end in memchr::memchr2_iter(b'\r', b'\n', piece) {
            let is_rest_of_crlf = self.after_cr && end == start && piece.get(end) == Some(&b'\n');
            self.after_cr = piece.get(end) == Some(&b'\r');
            if !is_rest_of_crlf {
                self.end_line(&piece.slice(start..end), events);
            }
            start = end + 1;
        }
        let rest = piece.slice(start..);
        if !rest.is_empty() {
            self.after_cr = false;
            self.add(&rest, events);
        }
    }

    fn add(&mut self, rest: &Bytes, events: &mut Vec<Event>) {
        if self.skipped.is_some() {
            // So much only that the line is not blank.
            self.line
                .extend(rest.first().filter(|_| self.line.is_empty()));
            return;
        }
        self.line.extend_from_slice(rest);
        if self.line.len() > LINE_MAX {
            let line = self.line.split().freeze();
            self.too_long(&line, events);
        }
    }

    fn end_line(&mut self, rest: &Bytes, events: &mut Vec<Event>) {
        let line = if self.line.is_empty() {
            // Copied, for the piece may be much larger and outlive the message.
            Bytes::copy_from_slice(rest)
        } else {
            self.line.extend_from_slice(rest);
            self.line.split().freeze()
        };
        match self.skipped {
            Some(Skipped::Line) => self.skipped = Some(Skipped::Event),
            Some(Skipped::Event) if line.is_empty() => self.skipped = None,
            Some(Skipped::Event) => {}
            None => self.take(&line, events),
        }
    }

    fn take(&mut self, line: &Bytes, events: &mut Vec<Event>) {
        let line = if std::mem::replace(&mut self.begun, true) {
            line.clone()
        } else {
            without_mark(line)
        };
        if line.is_empty() {
            return self.end_event(events);
        }
        let colon = memchr::memchr(b':', &line).unwrap_or(line.len());
        let value = line.slice((colon + 1).min(line.len())..);
        let value = value
            .strip_prefix(b" ")
            .map_or(value.clone(), |rest| value.slice_ref(rest));
        match line.get(..colon) {
            Some(b"data") => self.take_data(value, events),
            Some(b"event") => self.kind = text(&value).filter(|kind| &**kind != "message"),
            Some(b"id") if value.len() <= ID_MAX && !value.contains(&0) => self.id = text(&value),
            Some(b"retry") => {
                let millis = text(&value).and_then(|text| text.parse().ok());
                events.extend(millis.map(|millis| Event::Retry(Duration::from_millis(millis))));
            }
            _ => {}
        }
    }

    fn take_data(&mut self, value: Bytes, events: &mut Vec<Event>) {
        let joined = match self.data.take() {
            None => value,
            Some(before) => Bytes::from([&before, &value[..]].join(&b'\n')),
        };
        if joined.len() > MESSAGE_MAX {
            self.skipped = Some(Skipped::Event);
            self.forget();
            events.push(Event::TooLong(joined));
        } else {
            self.data = Some(joined);
        }
    }

    fn too_long(&mut self, line: &Bytes, events: &mut Vec<Event>) {
        self.skipped = Some(Skipped::Line);
        self.forget();
        if let Some(data) = line.strip_prefix(b"data:") {
            events.push(Event::TooLong(line.slice_ref(data)));
        }
    }

    fn end_event(&mut self, events: &mut Vec<Event>) {
        if self.id.is_some() {
            self.last_id.clone_from(&self.id);
        }
        if let Some(data) = self.data.take().filter(|data| !data.is_empty()) {
            let kind = self.kind.take();
            events.push(Event::Data { kind, data });
        }
        self.kind = None;
    }

    fn forget(&mut self) {
        self.data = None;
        self.kind = None;
    }
}

/// Without the byte order mark that a stream may begin with.
fn without_mark(line: &Bytes) -> Bytes {
    line.strip_prefix(b"\xef\xbb\xbf")
        .map_or(line.clone(), |rest| line.slice_ref(rest))
}

fn text(value: &[u8]) -> Option<Box<str>> {
    std::str::from_utf8(value).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(text: &str) -> Event {
        let data = Bytes::copy_from_slice(text.as_bytes());
        Event::Data { kind: None, data }
    }

    /// What a stream says that comes in pieces of so many bytes, and its last id.
    fn read(stream: &[u8], pieces: usize) -> (Vec<Event>, Option<String>) {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        for piece in stream.chunks(pieces) {
            decoder.read(&Bytes::copy_from_slice(piece), &mut events);
        }
        (events, decoder.last_id().map(str::to_owned))
    }

    #[test]
    fn a_stream_says_the_same_however_it_is_cut() {
        let stream = b"\xef\xbb\xbf: hello\r\nid: 1\r\ndata: {\"a\":1}\r\n\r\ndata:x\rdata\rdata:  y\r\rretry: 250\nid:2\n\
            event: message\ndata: z\n\nevent:endpoint\ndata:/m?s=1\n\nretry: soon\nunknown: x\n\n";
        let endpoint = Event::Data {
            kind: Some("endpoint".into()),
            data: Bytes::from_static(b"/m?s=1"),
        };
        let said = vec![
            data(r#"{"a":1}"#),
            data("x\n\n y"),
            Event::Retry(Duration::from_millis(250)),
            data("z"),
            endpoint,
        ];
        for pieces in 1..stream.len() + 1 {
            let (events, last) = read(stream, pieces);
            assert_eq!(
                (&events, last.as_deref()),
                (&said, Some("2")),
                "pieces of {pieces}"
            );
        }
    }

    #[test]
    fn an_event_without_data_says_its_id_alone_and_one_without_an_end_nothing() {
        assert_eq!(read(b"id: 7\ndata:\n\n", 3), (vec![], Some("7".into())));
        assert_eq!(read(b"id: 8\ndata: x\n", 3), (vec![], None));
        assert_eq!(
            read(b"id: 9\n\nid: a\0b\ndata: x\n\n", 64),
            (vec![data("x")], Some("9".into()))
        );
    }

    #[test]
    fn a_line_that_is_skipped_does_not_end_the_event_where_a_piece_ends_before_its_line_end() {
        let mut decoder = Decoder {
            skipped: Some(Skipped::Event),
            ..Decoder::default()
        };
        let mut events = Vec::new();
        for piece in ["data: x", "\n", "data: y\n", "\n", "data: z\n\n"] {
            decoder.read(&Bytes::from_static(piece.as_bytes()), &mut events);
        }
        assert_eq!(events, [data("z")]);
    }

    #[test]
    fn g16_data_past_the_bound_is_skipped_and_what_follows_is_read() {
        let long = "x".repeat(MESSAGE_MAX);
        let one = format!("data: {long}y\nid: 4\n\ndata: after\n\n");
        let two = format!("data: {long}\ndata: y\nid: 4\n\ndata: after\n\n");
        let endless = format!("data: {long}{long}\ndata: y\n\ndata: after\n\n");
        let fits = format!("data: {long}\n\ndata: after\n\n");
        for (stream, fits) in [(one, false), (two, false), (endless, false), (fits, true)] {
            let (events, last) = read(stream.as_bytes(), (1 << 16) - 1);
            let is_long = matches!(&events[0], Event::TooLong(begin) if begin.len() > MESSAGE_MAX);
            assert_eq!((is_long, last), (!fits, None));
            assert_eq!(events[1..], [data("after")]);
        }
    }
}
