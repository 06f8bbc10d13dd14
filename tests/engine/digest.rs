//! The published vectors of the manifest's digest, entire (P8).

use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tidegate::wire::digest::{Canonical, Refusal};

const VECTORS: &str = include_str!("../corpus/digest/manifest-digest-vectors.json");

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vectors {
    vectors: Vec<Vector>,
    sort_vectors: Vec<SortVector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    name: String,
    input: Box<RawValue>,
    canonical_json: Option<String>,
    sha256_hex: Option<String>,
    digest: Option<String>,
    same_digest_as: Option<String>,
    different_digest_from: Option<String>,
    expect_error: Option<String>,
}

#[derive(Deserialize)]
struct SortVector {
    name: String,
    input: Vec<String>,
    sorted: Vec<String>,
}

fn vectors() -> Vectors {
    serde_json::from_str(VECTORS).unwrap()
}

/// The error's name in the file.
fn label(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NotObject => "manifest_not_object",
        Refusal::Identifier(_) => "identifier_charset",
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn p8_every_published_manifest_has_its_published_digest_or_refusal() {
    let vectors = vectors().vectors;
    assert_eq!(vectors.len(), 25);
    for vector in &vectors {
        let read = Canonical::read(vector.input.get());
        let text = read.as_ref().ok().map(|manifest| manifest.text().unwrap());
        let revision = read
            .as_ref()
            .ok()
            .map(|manifest| manifest.revision().unwrap());
        let error = read.as_ref().err().map(|refusal| label(refusal).to_owned());
        let name = &vector.name;
        assert_eq!(error, vector.expect_error, "{name}");
        assert_eq!(text, vector.canonical_json, "{name}");
        assert_eq!(revision, vector.digest, "{name}");
        let sum = text.map(|text| hex(&Sha256::digest(text)));
        assert_eq!(sum, vector.sha256_hex, "{name}");
    }
}

#[test]
fn p8_published_manifests_that_are_the_same_have_one_digest_and_others_have_not() {
    let vectors = vectors().vectors;
    let digest = |name: &str| {
        let vector = vectors.iter().find(|vector| vector.name == name).unwrap();
        Canonical::read(vector.input.get())
            .unwrap()
            .revision()
            .unwrap()
    };
    let mut compared = 0;
    for vector in &vectors {
        if let Some(same) = &vector.same_digest_as {
            assert_eq!(digest(&vector.name), digest(same));
            compared += 1;
        }
        if let Some(other) = &vector.different_digest_from {
            assert_ne!(digest(&vector.name), digest(other));
            compared += 1;
        }
    }
    assert!(compared >= 5, "{compared}");
}

#[test]
fn p8_sets_are_sorted_by_their_bytes_as_published() {
    let vectors = vectors().sort_vectors;
    assert_eq!(vectors.len(), 4);
    for vector in vectors {
        // The order is that of strings in this language; no manifest can hold those outside ASCII.
        let mut sorted = vector.input.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted, vector.sorted, "{}", vector.name);
        if vector
            .input
            .iter()
            .all(|text| text.is_ascii() && !text.contains('\u{7f}'))
        {
            assert_eq!(
                through_a_manifest(&vector.input),
                vector.sorted,
                "{}",
                vector.name
            );
        }
    }
}

fn through_a_manifest(uses: &[String]) -> Vec<String> {
    let manifest = serde_json::json!({ "featureSets": { "f": { "uses": uses } } });
    let text = Canonical::read(&manifest.to_string())
        .unwrap()
        .text()
        .unwrap();
    let canonical: serde_json::Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(canonical["featureSets"]["f"]["uses"].clone()).unwrap()
}
