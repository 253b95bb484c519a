//! `alarm`.

use crate::command::{Command, Context, command, group};
use crate::failure::{Failure, Outcome};
use crate::print::fields::Lines;
use crate::print::go::put;
use api::etcdserverpb::alarm_request::AlarmAction;
use api::etcdserverpb::{AlarmRequest, AlarmResponse};

pub(crate) const COMMAND: Command = group(
    "alarm",
    "Alarms of the members",
    &[command("list", "", "Lists the alarms", list), command("disarm", "", "Ends all alarms", disarm)],
);

fn list(context: &Context) -> Outcome {
    if !context.args().is_empty() {
        return Err(Failure::args("alarm list command accepts no arguments"));
    }
    let client = context.client()?;
    let answer = context.call(client.alarm(AlarmRequest { action: AlarmAction::Get as i32, ..Default::default() }))?;
    print(context, &answer)
}

fn disarm(context: &Context) -> Outcome {
    if !context.args().is_empty() {
        return Err(Failure::args("alarm disarm command accepts no arguments"));
    }
    let client = context.client()?;
    let listed = context.call(client.alarm(AlarmRequest { action: AlarmAction::Get as i32, ..Default::default() }))?;
    let mut ended = AlarmResponse::default();
    for alarm in listed.alarms {
        let action = AlarmAction::Deactivate as i32;
        let request = AlarmRequest { action, member_id: alarm.member_id, alarm: alarm.alarm };
        ended.alarms.extend(context.call(client.alarm(request))?.alarms);
    }
    print(context, &ended)
}

fn print(context: &Context, answer: &AlarmResponse) -> Outcome {
    let printer = context.printer()?;
    let simple = || {
        let mut out = String::new();
        for alarm in &answer.alarms {
            put(&mut out, format_args!("memberID:{} alarm:{} \n", alarm.member_id, alarm.alarm().as_str_name()));
        }
        out.into_bytes()
    };
    let fields = || {
        let mut lines = Lines::new();
        lines.header(answer.header.as_ref());
        for alarm in &answer.alarms {
            lines.line("MemberID", alarm.member_id).line("AlarmType", alarm.alarm().as_str_name()).empty();
        }
        lines.end()
    };
    printer.answer("etcdserverpb.AlarmResponse", answer, Some(&simple), Some(&fields))
}
