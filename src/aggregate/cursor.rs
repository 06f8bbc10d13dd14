//! The cursors of merged lists: which servers have more, and where each of them goes on. A cursor says all of it
//! itself, so it needs no memory here and is good in any session; a server reads its own part as it gave it.

use std::collections::BTreeMap;

use super::list::List;
use crate::wire::jsonrpc::quoted;

/// The longest cursor of one server that is carried, in bytes.
pub(super) const PART_MAX: usize = 16 << 10;
/// What every cursor of ours begins with; the number is the form of what follows.
const HEAD: &str = "tidegate:1:";

/// Where each server goes on; one without a cursor begins anew.
pub(super) type Marks = BTreeMap<Box<str>, Option<Box<str>>>;

/// The JSON text of the cursor.
pub(super) fn written(list: List, marks: &Marks) -> String {
    let pairs = serde_json::to_string(&(list.method(), marks)).unwrap_or_default();
    quoted(&format!("{HEAD}{pairs}"))
}

/// Where to go on; `None` where the text is no cursor of that list.
pub(super) fn read(list: List, text: &str) -> Option<Marks> {
    let pairs = text.strip_prefix(HEAD)?;
    let (of, marks): (String, Marks) = serde_json::from_str(pairs).ok()?;
    (of == list.method() && !marks.is_empty()).then_some(marks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was_and_only_for_its_own_list() {
        let mut marks = Marks::new();
        marks.insert("a".into(), Some("p\"2\u{0}é".into()));
        marks.insert("b".into(), None);
        let text: String = serde_json::from_str(&written(List::Tools, &marks)).unwrap();
        assert_eq!(read(List::Tools, &text), Some(marks));
        assert_eq!(read(List::Prompts, &text), None);
        for odd in [
            "",
            "2",
            "tidegate:1:",
            "tidegate:1:{}",
            "tidegate:2:[]",
            "tidegate:1:[\"tools/list\",{}]",
            "tidegate:1:[\"tools/list\",{\"a\":1}]",
        ] {
            assert_eq!(read(List::Tools, odd), None, "{odd}");
        }
    }
}
