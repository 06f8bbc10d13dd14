//! docs/methods.md: its table of MCPL's methods is the one that the engine goes by.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use tidegate::wire::methods::{Form, METHODS, Method, Needs, Sender};

const BEGIN: &str =
    "<!-- The table is written by `UPDATE=1 cargo test --test engine methods`. -->\n";
const END: &str = "<!-- End of the table. -->\n";

fn needs(method: &Method) -> String {
    let named = |path: &&str| format!("`{path}`");
    let any = |paths: &[&str]| paths.iter().map(named).collect::<Vec<_>>().join(" or ");
    match method.needs {
        Needs::Nothing => "nothing".into(),
        Needs::Granted(paths) => any(paths),
        Needs::GrantedUnder(paths) => format!("{}, and the feature set that it names", any(paths)),
        Needs::Rollback => "the feature set that it names, which declares `rollback`".into(),
        Needs::Leave => "`allowHostCommands` in the server's entry".into(),
    }
}

fn refusal(method: &Method) -> String {
    match method.needs {
        _ if method.sender == Sender::Nobody => "-32601".into(),
        Needs::Nothing => String::new(),
        Needs::Granted(paths) => format!("-32002 `{{capability: \"{}\"}}`", paths[0]),
        Needs::GrantedUnder(paths) => {
            format!(
                "-32002 `{{capability: \"{}\"}}`, -32001 or -32003 `{{featureSet}}`",
                paths[0]
            )
        }
        Needs::Rollback => "-32001, -32003 or -32601 `{featureSet}`, -32602 without one".into(),
        Needs::Leave => "-32002 `{}`".into(),
    }
}

fn table() -> String {
    let mut text =
        "| method | sent by | as | needs | refused with |\n|---|---|---|---|---|\n".to_owned();
    for method in &METHODS {
        let sender = match method.sender {
            Sender::Server => "server",
            Sender::Host => "host",
            Sender::Both => "either",
            Sender::Nobody => "nobody: removed in MCPL 0.5",
        };
        let form = match method.form {
            Form::Request => "request",
            Form::Notification => "notification",
            Form::Either => "either",
        };
        let (name, needs, refusal) = (method.name, needs(method), refusal(method));
        writeln!(
            text,
            "| `{name}` | {sender} | {form} | {needs} | {refusal} |"
        )
        .unwrap();
    }
    text
}

#[test]
fn the_table_of_methods_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/methods.md");
    let text = fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let wanted = format!("{before}{BEGIN}\n{}\n{END}{after}", table());
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&file, &wanted).unwrap();
    }
    let is = fs::read_to_string(&file).unwrap();
    assert!(
        is == wanted,
        "write it: UPDATE=1 cargo test --test engine methods"
    );
}
