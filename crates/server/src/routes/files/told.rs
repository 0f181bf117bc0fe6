//! What is done to files, told as events.

use api::EventKind;
use engine::FileInfo;
use serde_json::json;

use super::{Asked, shown};
use crate::error::ApiError;

impl Asked {
    /// Something was written or made at a path.
    pub fn tell_created(&self, path: &[u8], info: &FileInfo) {
        self.tell(EventKind::FileCreated, path, info);
    }

    pub fn tell_read(&self, path: &[u8], info: &FileInfo) {
        self.tell(EventKind::FileRead, path, info);
    }

    fn tell(&self, kind: EventKind, path: &[u8], info: &FileInfo) {
        let entry = shown::entry(path, info);
        let data = match entry.is_directory {
            true => json!({ "path": entry.path, "isDirectory": true }),
            false => json!({ "path": entry.path, "sizeBytes": entry.size_bytes, "isDirectory": false }),
        };
        self.note(kind, data);
    }

    /// A directory went in or out as an archive.
    pub fn tell_archive(&self, kind: EventKind, path: &str) {
        self.note(kind, json!({ "path": path, "isDirectory": true }));
    }

    pub fn tell_deleted(&self, path: &str) {
        self.note(EventKind::FileDeleted, json!({ "path": path }));
    }

    /// What the sandbox did not let be done. Looking at a file is no operation that anybody has to hear of.
    pub fn tell_failed(&self, error: &ApiError) {
        let Some(operation) = self.operation else { return };
        let path = ["path", "from"].iter().find_map(|name| self.query.path(name).ok());
        let path = path.map(|path| shown::text(&path)).unwrap_or_default();
        let data =
            json!({ "path": path, "operation": operation, "code": error.code, "message": error.message });
        self.note(EventKind::FileError, data);
    }

    fn note(&self, kind: EventKind, data: serde_json::Value) {
        self.service.engine.sandbox(&self.account, &self.id).append_event(self.run.as_ref(), kind, data);
    }
}
