//! Closed sets that are labels of metrics: a value without a label does not compile, and so all of them are known.

/// Gives an enum `ALL` and `label`, from each of its values and how it reads.
macro_rules! labelled {
    ($set:ident: $($value:ident => $label:literal,)+) => {
        impl $set {
            /// All, for metrics that exist from the start.
            pub const ALL: [Self; [$($label),+].len()] = [$(Self::$value),+];

            /// The metric's label.
            #[must_use]
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$value => $label,)+
                }
            }
        }
    };
}

pub(in crate::engine) use labelled;
