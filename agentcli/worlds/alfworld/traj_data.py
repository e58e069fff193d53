"""The traj_data.json beside every game, for alfworld's own loader and expert.

The official files also hold the pictures, poses and human sentences of ALFRED. A
generated game has none: those fields are there but empty, and the annotation repeats
the task sentence.
"""

from typing import Any

from agentcli.worlds.alfworld.draw import Name


def traj_data(
    task_id: str,
    name: Name,
    sentence: str,
    walkthrough: list[str],
) -> dict[str, Any]:
    """One game's record in the official field names."""
    look = name.kind == "look_at_obj_in_light"
    return {
        "task_id": task_id.rsplit("/", 1)[-1],
        "task_type": name.kind,
        "pddl_params": {
            "mrecep_target": "",
            "object_sliced": False,
            "object_target": name.object,
            "parent_target": "" if look else name.receptacle,
            "toggle_target": name.receptacle if look else "",
        },
        "scene": {
            "floor_plan": f"FloorPlan{name.scene}",
            "scene_num": name.scene,
            "object_poses": [],
            "object_toggles": [],
        },
        "plan": {"high_pddl": [], "low_actions": []},
        "images": [],
        "turk_annotations": {
            "anns": [
                {
                    "assignment_id": "generated",
                    "task_desc": sentence,
                    "high_descs": walkthrough,
                    "votes": [],
                }
            ]
        },
    }
