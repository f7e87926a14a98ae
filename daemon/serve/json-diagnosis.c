/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <string.h>

#include "core/diagnosis.h"
#include "serve/json-build.h"
#include "serve/json-view.h"

int json_diagnosis(const struct view *view, struct json_object **ret) {
        _cleanup_json_ struct json_object *object = json_object_new_object();
        _cleanup_(diagnosis_done) struct diagnosis diagnosis = {};
        bool failed = false;

        if (!object)
                return -ENOMEM;
        if (!view->diagnose)
                return -EOPNOTSUPP;

        view->diagnose(&diagnosis, view->userdata);

        struct json_object *checks = json_add_array(object, "checks", &failed);
        for (size_t i = 0; i < diagnosis.n && !failed; i++) {
                const struct check *check = &diagnosis.checks[i];
                struct json_object *row = json_append_object(checks, &failed);

                if (!row)
                        break;

                json_add_string(row, "id", check->id, &failed);
                json_add_string(row, "title", check->title, &failed);
                json_add_string(row, "result", check_result_name(check->result), &failed);
                json_add_raw(row, "message", check->message, strlen(check->message), &failed);
                if (check->remedy)
                        json_add_raw(row, "remedy", check->remedy, strlen(check->remedy), &failed);
                else
                        json_add_null(row, "remedy", &failed);
        }

        return json_finish(&object, failed || diagnosis.failed, ret);
}
