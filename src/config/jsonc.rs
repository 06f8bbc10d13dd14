//! JSON with comments, as editors write it. Comments become spaces, so that every place stays what it was.

/// Blanks `// …` and `/* … */` outside of strings.
pub(super) fn blank_comments(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '"' => string(rest),
            '/' => comment(rest),
            _ => None,
        };
        let (taken, left) = rest.split_at(length.unwrap_or(c.len_utf8()));
        if c == '/' && length.is_some() {
            out.extend(taken.chars().map(|c| if c == '\n' { c } else { ' ' }));
        } else {
            out.push_str(taken);
        }
        rest = left;
    }
    out
}

/// The length of the string that begins here.
fn string(text: &str) -> Option<usize> {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    end.map(|(at, _)| at + 1)
}

/// The length of the comment that begins here, without the end of its line.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    text.starts_with("/*")
        .then(|| text.find("*/").map_or(text.len(), |at| at + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_become_spaces_and_strings_stay() {
        let source = "{ // a \"b\"\n \"u\": \"ws://h/*x*/\", /* é\n */ \"e\": \"\\\"//\" }";
        let blanked = blank_comments(source);
        assert_eq!(
            blanked,
            "{         \n \"u\": \"ws://h/*x*/\",     \n    \"e\": \"\\\"//\" }"
        );
        assert_eq!(source.chars().count(), blanked.chars().count());
    }

    #[test]
    fn what_is_not_closed_ends_with_the_text() {
        assert_eq!(blank_comments("1 /* x"), "1     ");
        assert_eq!(blank_comments("1 // x"), "1     ");
        assert_eq!(blank_comments("\"a // x"), "\"a     ");
        assert_eq!(blank_comments("/"), "/");
    }
}
