//! No text makes the reading of a file panic, and whatever is told has a place.

use std::fs;

use proptest::prelude::*;
use tidegate::config;

/// Texts of the pieces that files are made of, in any order.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("mcpServers: "),
        Just("a: "),
        Just("command: x"),
        Just("url: "),
        Just("ws://h"),
        Just("reconnectIntervalMs: "),
        Just("defaults: "),
        Just("hosts: "),
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just(", "),
        Just("\n"),
        Just("  "),
        Just("\n  - "),
        Just("\""),
        Just("${A:-"),
        Just("$"),
        Just("&x "),
        Just("*x"),
        Just("<<: "),
        Just("null"),
        Just("-1e999"),
        Just("é\u{0}"),
        Just("//"),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_with_a_place(text in text()) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["f.yaml", "f.json"] {
            let file = folder.path().join(name);
            fs::write(&file, &text).unwrap();
            let (problems, warnings) = config::check(&file, &|_| None);
            for told in problems.iter().chain(&warnings) {
                prop_assert!(told.line >= 1 && told.column >= 1);
            }
            let sound = config::load(&file, &|_| None).is_ok();
            prop_assert!(sound || !problems.is_empty());
        }
    }
}
