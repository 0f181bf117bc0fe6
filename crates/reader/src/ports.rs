//! The bodies of requests about ports.

use rules::{ExposeInput, ExposeOrder, expose_order, token_lifetime_ms};

use crate::bodies::readable;
use crate::fields::Fields;
use crate::{FieldFault, Refusal};

const EXPOSE: &[&str] = &["port", "visibility", "autoResume"];
const TOKEN: &[&str] = &["expiresInMs"];

/// Reads a body that exposes a port and puts the defaults in.
pub fn expose(body: &[u8]) -> Result<ExposeOrder, Refusal> {
    let fields = Fields::of_body(body, EXPOSE)?;
    let missing = || FieldFault::new("port", "missing", "an integer");
    let input = ExposeInput {
        port: fields.integer("port")?.ok_or_else(missing)?,
        visibility: fields.text("visibility")?,
        auto_resume: fields.boolean("autoResume")?,
    };
    expose_order(input).map_err(|error| readable(error).into())
}

/// Reads a body that asks for a token: how long it is to be good for, in milliseconds.
pub fn port_token(body: &[u8]) -> Result<u64, Refusal> {
    let given = Fields::of_body(body, TOKEN)?.integer("expiresInMs")?;
    token_lifetime_ms(given).map_err(|error| readable(error).into())
}

#[cfg(test)]
mod tests {
    use api::PortVisibility;

    use super::*;

    #[test]
    fn what_is_given_is_taken_and_the_rest_is_usual() {
        let order = expose(br#"{"port": 8080}"#).unwrap();
        assert_eq!(order, ExposeOrder { port: 8080, visibility: PortVisibility::Private, auto_resume: true });
        let order = expose(br#"{"port": 1, "visibility": "public", "autoResume": false, "x": []}"#).unwrap();
        assert_eq!(order, ExposeOrder { port: 1, visibility: PortVisibility::Public, auto_resume: false });
        assert_eq!(port_token(b"{}"), Ok(3_600_000));
        assert_eq!(port_token(br#"{"expiresInMs": 1000}"#), Ok(1000));
    }

    #[test]
    fn wrong_types_and_wrong_values_are_told_apart() {
        for malformed in
            ["", "[]", "{}", r#"{"port": "80"}"#, r#"{"port": null}"#, r#"{"port": 80, "autoResume": 1}"#]
        {
            let refusal = expose(malformed.as_bytes()).unwrap_err();
            assert!(!matches!(refusal, Refusal::Config(_)), "{malformed}: {refusal}");
        }
        for wrong in [r#"{"port": 0}"#, r#"{"port": 65536}"#, r#"{"port": 80, "visibility": "open"}"#] {
            let refusal = expose(wrong.as_bytes()).unwrap_err();
            assert!(matches!(refusal, Refusal::Config(_)), "{wrong}: {refusal}");
        }
        assert!(matches!(port_token(br#"{"expiresInMs": 1}"#), Err(Refusal::Config(_))));
        assert!(matches!(port_token(br#"{"expiresInMs": "1s"}"#), Err(Refusal::Field(_))));
    }
}
