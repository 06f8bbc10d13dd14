//! The map of files in docs/architecture.md: an item for each folder, with the name of each file in backquotes.

use std::collections::BTreeSet;

/// Where the map begins.
const HEAD: &str = "## Where everything is\n";

/// The files of `src` that the map does not name, and the folders of the map that are not there.
pub(crate) fn problems(map: &str, files: &[&str]) -> Vec<String> {
    let (_, map) = map.split_once(HEAD).unwrap();
    let items: Vec<Vec<&str>> = map.split("\n- ").skip(1).map(quoted).collect();
    let places: Vec<(&str, &str)> = files.iter().filter_map(|file| place(file)).collect();
    let is_named = |(folder, file): &(&str, &str)| {
        let of = items.iter().find(|item| item[0] == *folder);
        *file == "mod" || of.is_some_and(|item| item[1..].contains(file))
    };
    let unnamed = places.iter().filter(|place| !is_named(place));
    let unnamed = unnamed.map(|(folder, file)| format!("{folder}/{file}.rs is not in the map"));
    let folders: BTreeSet<&str> = places.iter().map(|(folder, _)| *folder).collect();
    let gone = items.iter().filter(|item| !folders.contains(item[0]));
    let gone = gone.map(|item| format!("`{}` of the map is no folder", item[0]));
    unnamed.chain(gone).collect()
}

/// What stands in backquotes.
fn quoted(item: &str) -> Vec<&str> {
    item.split('`').skip(1).step_by(2).collect()
}

/// The folder and the name of a file.
fn place(file: &str) -> Option<(&str, &str)> {
    file.strip_suffix(".rs")?.rsplit_once('/')
}

#[test]
fn a_file_that_the_map_does_not_name_and_a_folder_that_is_gone_are_found() {
    let map =
        format!("# Map\n\n{HEAD}\nBy folder.\n\n- `src`: `lib` the\n  root.\n- `src/a`: `b`.\n");
    let found = |files: &[&str]| problems(&map, files);
    assert!(found(&["src/lib.rs", "src/a/b.rs", "src/a/mod.rs"]).is_empty());
    assert_eq!(
        found(&["src/lib.rs", "src/a/c.rs"]),
        ["src/a/c.rs is not in the map"]
    );
    assert_eq!(
        found(&["src/a/b.rs", "src/b.rs"]),
        ["src/b.rs is not in the map"]
    );
    assert_eq!(found(&["src/lib.rs"]), ["`src/a` of the map is no folder"]);
}
