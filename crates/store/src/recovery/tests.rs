mod damage;
mod power;
