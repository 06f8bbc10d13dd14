//! How long a message and its frame may be, on either side, and several messages in one frame, each on a line.

/// The longest message that is read, in bytes (G16).
pub const MESSAGE_MAX: usize = 16 << 20;
/// The longest frame that a WebSocket assembles, in bytes; what lies between is skipped (docs/decisions/0004).
pub const FRAME_MAX: usize = 2 * MESSAGE_MAX;

/// The lines of a frame that are not blank, without the white space around them.
pub fn lines(frame: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = memchr::memchr_iter(b'\n', frame).chain([frame.len()]);
    let lines = ends.scan(0, |start, end| {
        let line = frame.get(*start..end).map(<[u8]>::trim_ascii);
        *start = end + 1;
        line
    });
    lines.filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_and_white_space_around_lines_are_nothing() {
        for (frame, expected) in [
            ("", &[][..]),
            ("\n \r\n", &[]),
            ("one", &["one"]),
            (" one \r\n\ntwo\n", &["one", "two"]),
        ] {
            let lines: Vec<_> = lines(frame.as_bytes()).collect();
            let expected: Vec<_> = expected.iter().map(|line| line.as_bytes()).collect();
            assert_eq!(lines, expected, "{frame:?}");
        }
    }
}
