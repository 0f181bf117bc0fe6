//! The cost of a model response.

use serde::{Deserialize, Serialize};

/// Records the cost of a model response.
///
/// ```
/// let cost = sandboxd_client::LlmCost {
///     model: "m-1".into(), input_tokens: 900, output_tokens: 50, amount: 0.004, currency: "USD".into(),
/// };
/// assert_eq!(serde_json::to_value(&cost).unwrap()["inputTokens"], 900);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LlmCost {
    pub model: String,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub amount: f64,
    /// The currency, such as `USD`.
    pub currency: String,
}
