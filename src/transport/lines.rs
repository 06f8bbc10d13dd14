//! Lines of a stream, each at most so long. A longer one is skipped to its end without being kept.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

/// What is read at once of a stream that holds nothing yet, in bytes.
const ROOM: usize = 16 << 10;
/// A line up to this length is copied, so that a kept one holds no more memory than its own. In bytes.
const COPIED_MAX: usize = 64 << 10;

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// All of it.
    Whole(Bytes),
    /// One that is longer than the bound: what was kept of it. Its end is empty where it never came.
    Long {
        /// Its first bytes.
        beginning: Bytes,
        /// Its last bytes.
        end: Bytes,
    },
    /// What stood between the last line end and the end of the stream.
    Unended(Bytes),
}

/// Reads lines. `next` may be dropped at any point without losing a byte.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line end.
    searched: usize,
    /// The beginning of the line that is being skipped.
    long: Option<Bytes>,
    ended: bool,
    max: usize,
    kept: usize,
    consumed: u64,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Lines of at most `max` bytes; of a longer one the first and the last `kept` bytes.
    pub fn new(reader: R, max: usize, kept: usize) -> Self {
        let (buffer, searched, consumed) = (BytesMut::new(), 0, 0);
        let (long, ended) = (None, false);
        Self {
            reader,
            buffer,
            searched,
            long,
            ended,
            max,
            kept,
            consumed,
        }
    }

    /// The stream.
    pub(super) fn reader(&self) -> &R {
        &self.reader
    }

    /// How many bytes were read from the stream.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Whether `next` has something to give without reading.
    pub(super) fn holds_line(&self) -> bool {
        let rest = self.buffer.get(self.searched..).unwrap_or_default();
        memchr::memchr(b'\n', rest).is_some()
    }

    /// The next line, or `None` at the end of the stream.
    ///
    /// # Errors
    /// Those of the stream.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.take() {
                return Ok(Some(line));
            }
            if self.ended {
                return Ok(None);
            }
            let read = self.fill().await?;
            self.consumed = self.consumed.saturating_add(read as u64);
            self.ended = read == 0;
        }
    }

    /// A line that the buffer holds, or the end of the stream makes.
    fn take(&mut self) -> Option<Line> {
        let rest = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(at) = memchr::memchr(b'\n', rest) else {
            self.searched = self.buffer.len();
            return self.take_unended();
        };
        let line = self.cut(self.searched + at);
        let beginning = self.long.take();
        let is_long = beginning.is_some() || line.len() > self.max;
        Some(if is_long {
            let beginning = beginning.unwrap_or_else(|| first(&line, self.kept));
            let end = last(&line, self.kept);
            Line::Long { beginning, end }
        } else {
            Line::Whole(line)
        })
    }

    fn take_unended(&mut self) -> Option<Line> {
        if self.long.is_none() && self.buffer.len() > self.max {
            self.long = Some(first(&self.buffer, self.kept));
        }
        if self.long.is_some() {
            return self.skip();
        }
        let unended = self.ended && !self.buffer.is_empty();
        unended.then(|| {
            self.searched = 0;
            Line::Unended(std::mem::take(&mut self.buffer).freeze())
        })
    }

    /// Keeps of a long line what may be its end.
    fn skip(&mut self) -> Option<Line> {
        let end = last(&self.buffer, self.kept);
        self.buffer = BytesMut::new();
        self.searched = 0;
        if self.ended {
            let (beginning, end) = (self.long.take()?, Bytes::new());
            return Some(Line::Long { beginning, end });
        }
        self.buffer.extend_from_slice(&end);
        self.searched = end.len();
        None
    }

    /// The first `length` bytes, and drops the line end behind them.
    fn cut(&mut self, length: usize) -> Bytes {
        let ended = self.buffer.split_to(length + 1).freeze();
        self.searched = 0;
        let line = ended.slice(..length);
        if length > COPIED_MAX {
            line
        } else {
            Bytes::copy_from_slice(&line)
        }
    }

    /// Reads what there is, at most as much again as the line that has begun. Says how much; 0 at the end.
    async fn fill(&mut self) -> io::Result<usize> {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
            return poll_fn(|cx| self.poll_begin(cx)).await;
        }
        if self.buffer.capacity() == self.buffer.len() {
            self.buffer.reserve(self.buffer.len().max(ROOM));
        }
        self.reader.read_buf(&mut self.buffer).await
    }

    /// Reads by way of the stack, so that an idle stream holds no memory.
    fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = [MaybeUninit::uninit(); ROOM];
        let mut read = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut self.reader).poll_read(cx, &mut read))?;
        self.buffer.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }
}

fn first(line: &[u8], kept: usize) -> Bytes {
    Bytes::copy_from_slice(line.get(..kept).unwrap_or(line))
}

fn last(line: &[u8], kept: usize) -> Bytes {
    let from = line.len().saturating_sub(kept);
    Bytes::copy_from_slice(line.get(from..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A reader that gives one chunk per read.
    struct Chunks(VecDeque<Bytes>);

    impl Chunks {
        fn new(chunks: &[&[u8]]) -> Self {
            Self(
                chunks
                    .iter()
                    .map(|chunk| Bytes::copy_from_slice(chunk))
                    .collect(),
            )
        }
    }

    impl AsyncRead for Chunks {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if let Some(mut chunk) = self.0.pop_front() {
                into.put_slice(&chunk.split_to(chunk.len().min(into.remaining())));
                if !chunk.is_empty() {
                    self.0.push_front(chunk);
                }
            }
            Poll::Ready(Ok(()))
        }
    }

    async fn all(chunks: &[&[u8]], max: usize) -> Vec<Line> {
        let mut lines = Lines::new(Chunks::new(chunks), max, 3);
        let mut read = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            read.push(line);
        }
        read
    }

    fn whole(text: &'static str) -> Line {
        Line::Whole(Bytes::from_static(text.as_bytes()))
    }

    fn long(beginning: &'static str, end: &'static str) -> Line {
        let [beginning, end] = [beginning, end].map(|text| Bytes::from_static(text.as_bytes()));
        Line::Long { beginning, end }
    }

    #[tokio::test]
    async fn lines_are_the_same_however_they_are_chopped() {
        let text = b"one\n\ntwo\r\nfour4\nthree3is3long\nlast";
        let expected = [
            whole("one"),
            whole(""),
            whole("two\r"),
            whole("four4"),
            long("thr", "ong"),
            Line::Unended(Bytes::from_static(b"last")),
        ];
        for size in 1..text.len() {
            let chunks: Vec<&[u8]> = text.chunks(size).collect();
            assert_eq!(all(&chunks, 6).await, expected, "chunks of {size}");
        }
    }

    #[tokio::test]
    async fn g16_a_line_without_end_is_not_kept() {
        let (mut writer, reader) = tokio::io::duplex(1 << 20);
        let mut lines = Lines::new(reader, 16 << 10, 3);
        let text = vec![b'x'; 1 << 20];
        tokio::io::AsyncWriteExt::write_all(&mut writer, &text)
            .await
            .unwrap();
        while lines.consumed() < 1 << 20 {
            assert!(futures_util::FutureExt::now_or_never(lines.next()).is_none());
            tokio::task::yield_now().await;
        }
        let held = lines.buffer.capacity();
        assert!(held <= 2 * ROOM, "{held}");
        drop(writer);
        assert_eq!(lines.next().await.unwrap(), Some(long("xxx", "")));
        assert_eq!(lines.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn an_idle_stream_gives_back_what_a_long_line_filled() {
        let (mut writer, reader) = tokio::io::duplex(1 << 20);
        let mut lines = Lines::new(reader, 1 << 20, 3);
        let text = Bytes::from([vec![b'x'; 300 << 10], b"\n".to_vec()].concat());
        tokio::io::AsyncWriteExt::write_all(&mut writer, &text)
            .await
            .unwrap();
        let whole = Line::Whole(text.slice(..300 << 10));
        assert_eq!(lines.next().await.unwrap(), Some(whole));
        assert!(futures_util::FutureExt::now_or_never(lines.next()).is_none());
        assert_eq!(lines.buffer.capacity(), 0);
    }
}
