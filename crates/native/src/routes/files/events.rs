//! Records file operations as events.

use admission::error::ApiError;
use api::EventKind;
use engine::FileInfo;
use serde_json::json;

use super::{FileRequest, view};

impl FileRequest {
    /// A file or directory was created or replaced.
    pub fn record_created(&self, path: &[u8], info: &FileInfo) {
        self.record(EventKind::FileCreated, path, info);
    }

    pub fn record_read(&self, path: &[u8], info: &FileInfo) {
        self.record(EventKind::FileRead, path, info);
    }

    fn record(&self, kind: EventKind, path: &[u8], info: &FileInfo) {
        let entry = view::entry(path, info);
        let data = match entry.is_directory {
            true => json!({ "path": entry.path, "isDirectory": true }),
            false => json!({ "path": entry.path, "sizeBytes": entry.size_bytes, "isDirectory": false }),
        };
        self.note(kind, data);
    }

    /// A directory was packed or unpacked.
    pub fn record_archive(&self, kind: EventKind, path: &str) {
        self.note(kind, json!({ "path": path, "isDirectory": true }));
    }

    pub fn record_deleted(&self, path: &str) {
        self.note(EventKind::FileDeleted, json!({ "path": path }));
    }

    /// The operation failed. Operations without a name, such as stat, are not recorded.
    pub fn record_failed(&self, error: &ApiError) {
        let Some(operation) = self.operation else { return };
        let path = ["path", "from"].iter().find_map(|name| self.query.path(name).ok());
        let path = path.map(|path| view::text(&path)).unwrap_or_default();
        let data =
            json!({ "path": path, "operation": operation, "code": error.code, "message": error.message });
        self.note(EventKind::FileError, data);
    }

    fn note(&self, kind: EventKind, data: serde_json::Value) {
        self.sandbox.handle().append_event(self.run.as_ref(), kind, data);
    }
}
