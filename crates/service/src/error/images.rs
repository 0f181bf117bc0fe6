//! Errors of images that are not available.

use admission::error::{ApiError, Condition, RefusalCode};
use api::{ErrorCode, TemplateId, TemplateState};
use image::{FailureKind, ImageError, SourceFailure};
use rules::{ImageReference, ReachedLimit, nearest_name};

/// An unreachable source may recover.
const RETRY_AFTER_S: u64 = 30;
/// The most images that an error lists if none has a similar name.
const SHOWN_IMAGES: usize = 3;
/// Shorter names are the beginnings of too many others.
const PREFIX_CHARS: usize = 3;
/// A pull takes seconds to minutes.
const PULLS_RETRY_S: u64 = 10;

/// The images and templates that an account can use in place of one that it cannot.
pub struct KnownImages {
    pub images: Vec<String>,
    pub templates: Vec<String>,
}

/// The account may not name the image, or no image has such a name.
pub fn unknown_image(name: &str, reference: Option<&ImageReference>, known: &KnownImages) -> ApiError {
    let images: Vec<String> = known.images.iter().map(|name| rules::quoted(name)).collect();
    let (shown, allowed) = (rules::quoted(name), rules::alternatives(&images));
    let config = |message: String| ApiError::new(ErrorCode::InvalidConfig, message);
    let same = reference.and_then(|reference| of_same_repository(reference, &known.images));
    let error = if let Some(same) = same {
        let nearest = rules::quoted(same);
        let message = format!(
            "image is {shown}; the nearest image is {nearest}, of the same repository: use that; allowed: {allowed}"
        );
        suggest_template(
            config(message).with_detail("field", "image").with_detail("nearest", same),
            name,
            known,
        )
    } else {
        suggest(config(format!("image is {shown}; allowed: {allowed}")), name, known)
    };
    let Some(reference) = reference else { return error };
    let command = format!("sandboxd image allow {reference}");
    // An image with a stand-in is often one whose registry cannot be reached.
    let condition = if same.is_some() { ", if its registry can be reached," } else { "" };
    let message = format!("{}; the operator allows it{condition} with: {command}", error.message);
    error.with_message(message).with_detail("allowCommand", command)
}

/// The builds of a template of this name have ended without a result, or the first one goes on.
pub fn unfinished_template(name: &str, id: &TemplateId, state: TemplateState) -> ApiError {
    let why = match state {
        TemplateState::Failed => "its newest build failed, and the log of the build says why",
        TemplateState::Cancelled => "its newest build was cancelled; build it again",
        TemplateState::Queued | TemplateState::Building | TemplateState::Ready => {
            "it is still being built; wait for the end of the build"
        }
    };
    let message = format!("image is {}, a template without a finished build: {why}", rules::quoted(name));
    // The next build may have a result: a repeat under an idempotency key must not get this error for a day.
    ApiError::new(ErrorCode::InvalidConfig, message)
        .temporary()
        .with_detail("field", "image")
        .with_detail("templateId", id.as_str())
}

/// The account may name the image, but its registry has not confirmed that it has it. `failures`: why not, if that is known; otherwise the
/// registry has not answered in time.
pub fn unconfirmed_image(
    (name, reference): (&str, &ImageReference),
    known: &KnownImages,
    failures: Option<&[SourceFailure]>,
) -> ApiError {
    let unavailable = |why: &str| {
        let message = format!("image {} is not available: {why}; use another image", rules::quoted(name));
        suggest(ApiError::new(ErrorCode::InvalidConfig, message), name, known)
    };
    let Some(failures) = failures else {
        // The pull continues: a repeat under an idempotency key must not get this error for a day.
        return unavailable("its source does not answer; if it has the image, the pull continues")
            .temporary();
    };
    let error = if lacks_credentials(failures) {
        bad_credentials(name)
    } else if may_pass(failures) || failures.iter().any(|failure| failure.kind == FailureKind::Untrusted) {
        // Another attempt can succeed, also after the operator has installed an authority: no restart is needed.
        unavailable(&why_not(failures)).temporary()
    } else {
        unavailable(&why_not(failures))
    };
    error.with_cause(ImageError::AllFailed { name: reference.to_string(), failures: failures.to_vec() })
}

/// The operator requires digests. `digest`: that of the image with the tag, if it is on this host.
pub fn needs_digest(name: &str, reference: &ImageReference, digest: Option<&str>) -> ApiError {
    let pinned = format!("{}@{}", reference.name(), digest.unwrap_or("sha256:DIGEST"));
    let message = format!(
        "image is {}, a tag, which can change; this service requires a digest: {}",
        rules::quoted(name),
        rules::quoted(&pinned)
    );
    ApiError::new(ErrorCode::InvalidConfig, message).with_detail("field", "image")
}

/// Adds the field, and the nearest names of images and templates.
fn suggest(error: ApiError, name: &str, known: &KnownImages) -> ApiError {
    let mut error = error.with_detail("field", "image");
    let images: Vec<&str> = known.images.iter().map(String::as_str).collect();
    let nearest = nearest_images(name, images.clone());
    if let Some(similar) = similar_image(name, &images) {
        error.message = format!("{}; the nearest image is {}", error.message, rules::quoted(similar));
        error = error.with_detail("nearest", similar);
    } else if let Some(first) = nearest.first() {
        let shown = nearest.iter().map(|name| rules::quoted(name)).collect::<Vec<_>>().join(", ");
        let message = format!("no image has a similar name, the nearest images are: {shown}");
        error.message = format!("{}; {message}", error.message);
        error = error.with_detail("nearest", *first);
    }
    suggest_template(error, name, known)
}

/// Adds the template that was meant, if one is similar.
fn suggest_template(mut error: ApiError, name: &str, known: &KnownImages) -> ApiError {
    let templates: Vec<&str> = known.templates.iter().map(String::as_str).collect();
    if let Some(similar) = similar_image(name, &templates) {
        error.message = format!("{}; the nearest template is {}", error.message, rules::quoted(similar));
        error = error.with_detail("nearestTemplate", similar);
    }
    error
}

/// The image of the repository of a reference whose tag comes closest.
fn of_same_repository<'a>(reference: &ImageReference, known: &'a [String]) -> Option<&'a str> {
    let is_same =
        |name: &&str| ImageReference::parse(name).is_some_and(|known| known.name() == reference.name());
    let same: Vec<&str> = known.iter().map(String::as_str).filter(is_same).collect();
    nearest_name(&reference.to_string(), &same)
}

/// The name that was meant, if one is similar. A tag is seldom what was mistyped: `ubuntu` and `ubnutu` are `ubuntu:24.04`, although
/// fewer edits make `custom` of them.
fn similar_image<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let repository = without_tag(name);
    let repositories: Vec<&str> = known.iter().map(|known| without_tag(known)).collect();
    let same_start = || repositories.iter().position(|known| has_same_start(repository, known));
    let at = rules::misplaced(repository, &repositories).or_else(same_start)?;
    tagged(name, repositories[at], known)
}

/// Whether the last component of one name begins with that of the other, such as `python-slim` and `python`.
fn has_same_start(name: &str, other: &str) -> bool {
    let last = |name: &str| name.rsplit('/').next().unwrap_or_default().to_lowercase();
    let (name, other) = (last(name), last(other));
    let shorter = name.chars().count().min(other.chars().count());
    shorter >= PREFIX_CHARS && (name.starts_with(&other) || other.starts_with(&name))
}

/// The known name with the fewest edits from this one, which may be many. Tags count only between those of one repository.
fn nearest_image<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let untagged: Vec<&str> = known.iter().map(|known| without_tag(known)).collect();
    let nearest = nearest_name(without_tag(name), &untagged)?;
    tagged(name, nearest, known)
}

/// The one of a repository whose tag comes closest.
fn tagged<'a>(name: &str, repository: &str, known: &[&'a str]) -> Option<&'a str> {
    let tagged: Vec<&'a str> =
        known.iter().copied().filter(|known| without_tag(known) == repository).collect();
    nearest_name(name, &tagged)
}

/// Some of the known names, those with the fewest edits first.
fn nearest_images<'a>(name: &str, mut known: Vec<&'a str>) -> Vec<&'a str> {
    let mut nearest = Vec::new();
    while nearest.len() < SHOWN_IMAGES
        && let Some(next) = nearest_image(name, &known)
    {
        known.retain(|known| *known != next);
        nearest.push(next);
    }
    nearest
}

fn without_tag(name: &str) -> &str {
    match name.rsplit_once(':') {
        // The colon before a slash is that of a port.
        Some((untagged, tag)) if !tag.contains('/') => untagged,
        _ => name,
    }
}

/// The API error for an image that cannot be had.
pub fn of_image(error: ImageError) -> ApiError {
    let config =
        |message: String| ApiError::new(ErrorCode::InvalidConfig, message).with_detail("field", "image");
    let api_error = match &error {
        ImageError::UnknownName { name, known } => {
            let known: Vec<String> = known.iter().map(|name| rules::quoted(name)).collect();
            let name = rules::quoted(name);
            return config(format!("image is {name}; allowed: {}", rules::alternatives(&known)));
        }
        ImageError::NoSource { name } => {
            return config(format!(
                "image is {}, which has no source on this service; use another image, or ask the operator to configure a source",
                rules::quoted(name)
            ));
        }
        ImageError::PullQuota { reached, .. } => {
            let why = "the account has pulled as much as it may today";
            ApiError::refused(RefusalCode::QuotaExceeded, why, reached.limit(), reached.retry_after_s)
        }
        ImageError::TooManyPulls { allowed } => {
            let limit = ReachedLimit::fixed(*allowed as u64, "pulls of images at a time of an account");
            ApiError::refused(RefusalCode::RateLimited, &error, limit, PULLS_RETRY_S)
        }
        ImageError::BadName { .. } | ImageError::BadSource { .. } => return config(error.to_string()),
        ImageError::AllFailed { name, failures } if lacks_credentials(failures) => bad_credentials(name),
        ImageError::AllFailed { name, failures } => {
            let message = format!("image {} is not available: {}", rules::quoted(name), why_not(failures));
            // Paths and addresses of sources are only in the log.
            if may_pass(failures) {
                let (code, condition) = (RefusalCode::ResourceExhausted, Condition::ImageSource);
                ApiError::refused(code, message, condition, RETRY_AFTER_S)
            } else {
                config(format!("{message}; use another image"))
            }
        }
        ImageError::Store { .. } => ApiError::unexpected(),
    };
    api_error.with_cause(error)
}

/// Whether a source was not asked because the operator's file of logins cannot be used.
fn lacks_credentials(failures: &[SourceFailure]) -> bool {
    failures.iter().any(|failure| failure.kind == FailureKind::Credentials)
}

/// A fault of this service. The path of the file and the place in it are only in the log.
fn bad_credentials(name: &str) -> ApiError {
    let message = format!(
        "image {} is not available: the operator's credentials for its registry cannot be read; the operator can find the cause in the \
         log by the id of this request",
        rules::quoted(name)
    );
    ApiError::new(ErrorCode::InternalError, message)
}

/// Whether a retry can succeed: at least one of the failures is temporary.
fn may_pass(failures: &[SourceFailure]) -> bool {
    failures.iter().any(|failure| match failure.kind {
        FailureKind::Unreachable | FailureKind::TooSlow | FailureKind::Tool | FailureKind::Io => true,
        FailureKind::Untrusted
        | FailureKind::NotFound
        | FailureKind::Denied
        | FailureKind::Credentials
        | FailureKind::Closed
        | FailureKind::Refused
        | FailureKind::TooBig => false,
    })
}

/// The reasons without the sources, each kind once.
fn why_not(failures: &[SourceFailure]) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    for failure in failures {
        let reason = match failure.kind {
            FailureKind::Unreachable => "its source cannot be reached",
            FailureKind::Untrusted => {
                "this service does not trust the certificate of its source, which the operator can change"
            }
            FailureKind::NotFound => "its source does not have it",
            FailureKind::Denied => "its source denies access to it",
            FailureKind::Credentials => "the operator's credentials for its source cannot be read",
            FailureKind::Closed => {
                "its registry, or a server that this names, has no public address, and images.private_registries of the service does \
                 not list it"
            }
            FailureKind::Refused => "its source has no valid image",
            FailureKind::TooBig => "it is larger than this service accepts",
            FailureKind::TooSlow => "its source is too slow",
            FailureKind::Tool | FailureKind::Io => "this service failed to store it",
        };
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    if reasons.is_empty() { "it has no source".to_owned() } else { reasons.join(", or ") }
}
